//! A component without Hatchery's contract. Its types are in `wit/calendar.wit`.

#[allow(missing_docs, clippy::same_length_and_capacity)]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "calendar", generate_all });
}

use bindings::exports::example::calendar::dates::{Date, Entry, Guest as Dates, Marks, Repeat, Weekday};
use bindings::exports::example::calendar::pens::{Guest as Pens, GuestPen, PenBorrow};
use bindings::exports::example::calendar::texts::Guest as Texts;

struct Calendar;

impl Dates for Calendar {
    fn weekday_of(date: Date) -> Result<Weekday, String> {
        const DAYS: [Weekday; 7] = [
            Weekday::Saturday,
            Weekday::Sunday,
            Weekday::Monday,
            Weekday::Tuesday,
            Weekday::Wednesday,
            Weekday::Thursday,
            Weekday::Friday,
        ];
        if !(1..=12).contains(&date.month) {
            return Err(format!("there is no month {}", date.month));
        }
        // Zeller's congruence, in which January and February belong to the year before.
        let (year, month) = if date.month < 3 { (date.year - 1, date.month + 12) } else { (date.year, date.month) };
        let (century, year) = (year.div_euclid(100), year.rem_euclid(100));
        let day = i32::from(date.day) + 13 * (i32::from(month) + 1) / 5 + year + year / 4 + century / 4 + 5 * century;
        let index = usize::try_from(day.rem_euclid(7)).map_err(|error| error.to_string())?;
        DAYS.get(index).copied().ok_or_else(|| "a week has seven days".into())
    }

    fn copy(entry: Entry) -> Entry {
        entry
    }

    fn describe(entry: Entry) -> String {
        let Entry { title, at, .. } = entry;
        format!("{title} on {}-{:02}-{:02}", at.year, at.month, at.day)
    }

    fn measure(bytes: Vec<u8>) -> (u64, f64, char) {
        let (count, sum) = (bytes.len() as u64, bytes.iter().map(|byte| f64::from(*byte)).sum::<f64>());
        (count, sum / count as f64, bytes.first().map_or('-', |byte| char::from(*byte)))
    }

    fn forget(_: bool) {}

    fn refuse() -> Result<(), Entry> {
        let at = Date { year: 2026, month: 1, day: 1 };
        Err(Entry {
            title: "closed".into(),
            at,
            note: None,
            marks: Marks::empty(),
            repeat: Repeat::Never,
            seen: None,
            answer: Ok(1),
        })
    }

    async fn slowly(steps: u32) -> u32 {
        for _ in 0..steps {
            wit_bindgen::yield_async().await;
        }
        steps
    }

    #[allow(clippy::panic, reason = "the tests need it")]
    fn crash() {
        panic!("the page is torn");
    }

    fn fill(count: u32) -> String {
        "x".repeat(count as usize)
    }
}

impl Texts for Calendar {
    fn describe(text: String) -> String {
        format!("{} letters", text.chars().count())
    }
}

struct Pen(String);

impl GuestPen for Pen {
    fn new(color: String) -> Self {
        Self(color)
    }

    fn draw(&self) -> String {
        format!("a {} line", self.0)
    }
}

impl Pens for Calendar {
    type Pen = Pen;

    fn sharpen(_: PenBorrow<'_>) {}
}

impl bindings::Guest for Calendar {
    fn version() -> String {
        env!("CARGO_PKG_VERSION").into()
    }
}

bindings::export!(Calendar with_types_in bindings);
