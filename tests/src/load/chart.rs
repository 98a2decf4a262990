//! Line charts with two logarithmic axes, as SVG.

use std::fmt::Write;

/// A chart of lines.
pub(super) struct Chart<'a> {
    pub(super) title: &'a str,
    /// The label of the horizontal axis.
    pub(super) x: &'a str,
    /// The label of the vertical axis.
    pub(super) y: &'a str,
    pub(super) lines: Vec<Line<'a>>,
}

/// A named line through positive points.
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    pub(super) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 64.0;
/// Beside the plot there is room for the names of the lines.
const RIGHT: f64 = 490.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 348.0;
/// Distinguishable with the common kinds of colour blindness.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"];

/// A logarithmic axis whose ends are powers of ten.
struct Axis {
    low: i32,
    high: i32,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let low = values.clone().fold(f64::INFINITY, f64::min).log10().floor() as i32;
        let high = values.fold(0.0, f64::max).log10().ceil() as i32;
        Self { low, high: high.max(low + 1), from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let share = (value.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        self.from + share * (self.to - self.from)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        (self.low..=self.high).map(|power| 10_f64.powi(power))
    }
}

impl Chart<'_> {
    pub(super) fn to_svg(&self) -> String {
        let points = self.lines.iter().flat_map(|line| line.points.iter());
        let x = Axis::new(points.clone().map(|point| point.0), LEFT, RIGHT);
        let y = Axis::new(points.map(|point| point.1), BOTTOM, TOP);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<title>{0}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{0}</text>\n",
            escape(self.title)
        );
        // Writing to a string cannot fail.
        let _ = self.write_axes(&mut svg, &x, &y);
        for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let _ = write_line(&mut svg, line, colour, &x, &y);
        }
        let _ = self.write_names(&mut svg, &y);
        svg.push_str("</svg>\n");
        svg
    }

    fn write_axes(&self, svg: &mut String, x: &Axis, y: &Axis) -> std::fmt::Result {
        for tick in x.ticks() {
            let at = x.place(tick);
            writeln!(svg, "<path d=\"M{at:.1} {TOP}V{BOTTOM}\" stroke=\"#ddd\"/>")?;
            writeln!(svg, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{tick}</text>", BOTTOM + 18.0)?;
        }
        for tick in y.ticks() {
            let at = y.place(tick);
            writeln!(svg, "<path d=\"M{LEFT} {at:.1}H{RIGHT}\" stroke=\"#ddd\"/>")?;
            writeln!(svg, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>", LEFT - 8.0, at + 4.0)?;
        }
        let (middle, bottom) = (f64::midpoint(LEFT, RIGHT), HEIGHT - 12.0);
        writeln!(svg, "<text x=\"{middle}\" y=\"{bottom}\" text-anchor=\"middle\">{}</text>", escape(self.x))?;
        let middle = f64::midpoint(TOP, BOTTOM);
        let turn = format!("transform=\"rotate(-90 16 {middle})\" text-anchor=\"middle\"");
        writeln!(svg, "<text x=\"16\" y=\"{middle}\" {turn}>{}</text>", escape(self.y))
    }

    /// Writes the name of each line beside its end, without overlaps.
    fn write_names(&self, svg: &mut String, y: &Axis) -> std::fmt::Result {
        let mut names: Vec<_> = self
            .lines
            .iter()
            .zip(COLOURS.iter().cycle())
            .filter_map(|(line, colour)| Some((y.place(line.points.last()?.1), line.name, colour)))
            .collect();
        names.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut free = TOP;
        for (at, name, colour) in names {
            let at = at.max(free);
            free = at + 15.0;
            writeln!(svg, "<text x=\"{}\" y=\"{at:.1}\" fill=\"{colour}\">{}</text>", RIGHT + 8.0, escape(name))?;
        }
        Ok(())
    }
}

fn write_line(svg: &mut String, line: &Line<'_>, colour: &str, x: &Axis, y: &Axis) -> std::fmt::Result {
    let points: Vec<_> =
        line.points.iter().map(|point| format!("{:.1},{:.1}", x.place(point.0), y.place(point.1))).collect();
    writeln!(svg, "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>", points.join(" "))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ratios_have_equal_distances() {
        let axis = Axis::new([2.0, 300.0].into_iter(), 0.0, 300.0);
        assert_eq!((axis.low, axis.high), (0, 3));
        assert_eq!([1.0, 10.0, 1000.0].map(|value| axis.place(value)), [0.0, 100.0, 300.0]);
    }

    #[test]
    fn a_chart_has_each_line_and_its_name() {
        let lines = vec![
            Line { name: "flat", points: vec![(10.0, 1.0), (1000.0, 1.0)] },
            Line { name: "a < b", points: vec![(10.0, 1.0), (1000.0, 100.0)] },
        ];
        let svg = Chart { title: "Turns", x: "length", y: "ms", lines }.to_svg();
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains(">flat</text>") && svg.contains(">a &lt; b</text>"), "{svg}");
    }
}
