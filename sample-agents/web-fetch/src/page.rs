//! Text of web pages without markup, as an approximation that is good enough for models.

/// Elements whose content is not text.
const IGNORED_ELEMENTS: [&str; 5] = ["script", "style", "noscript", "svg", "template"];

const ENTITIES: [(&str, &str); 6] =
    [("&nbsp;", " "), ("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];

/// The text of a page.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub title: String,
    /// The text in one line.
    pub text: String,
}

impl Page {
    /// Extracts the text of an HTML page.
    pub fn from_html(source: &str) -> Self {
        let (mut title, mut text, mut rest) = (String::new(), String::new(), source);
        while let Some((before, after)) = rest.split_once('<') {
            text.push_str(before);
            text.push(' ');
            rest = match after.strip_prefix("!--") {
                Some(comment) => comment.split_once("-->").map_or("", |(_, rest)| rest),
                None => {
                    let (tag, content) = after.split_once('>').unwrap_or((after, ""));
                    let name = tag.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
                    if name.eq_ignore_ascii_case("title") && title.is_empty() {
                        let (inner, rest) = element(content, name);
                        title = line(inner);
                        rest
                    } else if IGNORED_ELEMENTS.iter().any(|ignored| name.eq_ignore_ascii_case(ignored)) {
                        element(content, name).1
                    } else {
                        content
                    }
                }
            };
        }
        text.push_str(rest);
        Self { title, text: line(&text) }
    }

    /// Returns a page of plain text, with its first line as the title.
    pub fn from_text(source: &str) -> Self {
        Self { title: source.lines().map(line).find(|line| !line.is_empty()).unwrap_or_default(), text: line(source) }
    }
}

/// Splits `content` at the end of the element that it begins in: returns the element's content and the rest.
fn element<'a>(content: &'a str, name: &str) -> (&'a str, &'a str) {
    let closes = |at: &usize| {
        let after = content.get(at + 2..at + 2 + name.len());
        after.is_some_and(|after| after.eq_ignore_ascii_case(name))
    };
    match content.match_indices("</").map(|(at, _)| at).find(closes) {
        Some(end) => {
            let (inner, rest) = content.split_at(end);
            (inner, rest.split_once('>').map_or("", |(_, rest)| rest))
        }
        None => (content, ""),
    }
}

/// Returns the text in one line, with resolved entities.
fn line(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (entity, character) in ENTITIES {
        line = line.replace(entity, character);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_removed_from_a_page() {
        let page = Page::from_html(
            "<!doctype html><html><head><TITLE lang=en>A &amp; B</TITLE><style>p { color: red }</style></head>\n\
             <body><!-- <p>old</p> --><h1>Hello</h1>\n<p>1 &lt; 2<script>if (a < b) {}</script></p>öffnen<svg>x</SVG> end</body>",
        );
        assert_eq!(page, Page { title: "A & B".into(), text: "Hello 1 < 2 öffnen end".into() });
    }

    #[test]
    fn malformed_markup_is_read_as_far_as_possible() {
        assert_eq!(Page::from_html("a <b").text, "a");
        assert_eq!(Page::from_html("a <script>never ends"), Page { title: String::new(), text: "a".into() });
        assert_eq!(Page::from_html("<title>never ends").title, "never ends");
        assert_eq!(Page::from_html("<!-- never ends"), Page::default());
        assert_eq!(Page::from_html("<"), Page::default());
        assert_eq!(Page::from_text("\n One \n two"), Page { title: "One".into(), text: "One two".into() });
    }
}
