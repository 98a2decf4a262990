//! What a page says, without its markup. It is for models to read, so it need not be exact.

/// Elements whose content nobody reads.
const UNREAD: [&str; 5] = ["script", "style", "noscript", "svg", "template"];

const ENTITIES: [(&str, &str); 6] =
    [("&nbsp;", " "), ("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];

/// A page.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub title: String,
    /// In one line.
    pub text: String,
}

impl Page {
    /// What an HTML page says.
    pub fn of_html(source: &str) -> Self {
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
                    } else if UNREAD.iter().any(|unread| name.eq_ignore_ascii_case(unread)) {
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

    /// What a page of plain text says; its first line is its title.
    pub fn of_text(source: &str) -> Self {
        Self { title: source.lines().map(line).find(|line| !line.is_empty()).unwrap_or_default(), text: line(source) }
    }
}

/// The content of an element, and what follows it.
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

/// A text in one line, with its entities resolved.
fn line(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (entity, meant) in ENTITIES {
        line = line.replace(entity, meant);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_without_its_markup() {
        let page = Page::of_html(
            "<!doctype html><html><head><TITLE lang=en>A &amp; B</TITLE><style>p { color: red }</style></head>\n\
             <body><!-- <p>old</p> --><h1>Hello</h1>\n<p>1 &lt; 2<script>if (a < b) {}</script></p>öffnen<svg>x</SVG> end</body>",
        );
        assert_eq!(page, Page { title: "A & B".into(), text: "Hello 1 < 2 öffnen end".into() });
    }

    #[test]
    fn what_is_broken_is_read_as_far_as_it_goes() {
        assert_eq!(Page::of_html("a <b").text, "a");
        assert_eq!(Page::of_html("a <script>never ends"), Page { title: String::new(), text: "a".into() });
        assert_eq!(Page::of_html("<title>never ends").title, "never ends");
        assert_eq!(Page::of_html("<!-- never ends"), Page::default());
        assert_eq!(Page::of_html("<"), Page::default());
        assert_eq!(Page::of_text("\n One \n two"), Page { title: "One".into(), text: "One two".into() });
    }
}
