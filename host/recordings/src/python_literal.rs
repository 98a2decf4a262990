//! Parser for Python literals (`{'city': 'Oslo', 'ok': True}`). Agents in Python write arguments and results this way
//! into prompts.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::{Map, Number, Value};

/// The maximum nesting of lists and dicts.
const MAX_DEPTH: usize = 64;

/// Parses a literal that has a JSON equivalent: a dict with string keys, a list, a tuple, a string, a number, `True`,
/// `False` or `None`.
pub(crate) fn parse(text: &str) -> Option<Value> {
    let mut parser = Parser { chars: text.chars().peekable(), depth: 0 };
    let value = parser.value()?;
    parser.skip_whitespace();
    parser.chars.next().is_none().then_some(value)
}

struct Parser<'a> {
    chars: Peekable<Chars<'a>>,
    depth: usize,
}

impl Parser<'_> {
    fn value(&mut self) -> Option<Value> {
        self.skip_whitespace();
        match *self.chars.peek()? {
            '{' => self.nested(Self::dict),
            '[' => self.nested(|parser| parser.list(']')),
            '(' => self.nested(|parser| parser.list(')')),
            '\'' | '"' => self.string().map(Value::String),
            _ => self.word(),
        }
    }

    fn nested(&mut self, parse: impl FnOnce(&mut Self) -> Option<Value>) -> Option<Value> {
        self.chars.next();
        self.depth += 1;
        let value = (self.depth <= MAX_DEPTH).then(|| parse(self))?;
        self.depth -= 1;
        value
    }

    fn dict(&mut self) -> Option<Value> {
        let mut map = Map::new();
        while !self.consume_close('}') {
            self.skip_whitespace();
            let key = self.string()?;
            self.skip_whitespace();
            self.chars.next_if_eq(&':')?;
            map.insert(key, self.value()?);
            self.separator('}')?;
        }
        Some(Value::Object(map))
    }

    fn list(&mut self, close: char) -> Option<Value> {
        let mut items = Vec::new();
        while !self.consume_close(close) {
            items.push(self.value()?);
            self.separator(close)?;
        }
        Some(Value::Array(items))
    }

    fn consume_close(&mut self, close: char) -> bool {
        self.skip_whitespace();
        self.chars.next_if_eq(&close).is_some()
    }

    /// Consumes a comma, unless the closing character is next.
    fn separator(&mut self, close: char) -> Option<()> {
        self.skip_whitespace();
        let is_end = self.chars.peek() == Some(&close);
        (is_end || self.chars.next_if_eq(&',').is_some()).then_some(())
    }

    fn string(&mut self) -> Option<String> {
        let quote = self.chars.next_if(|c| matches!(c, '\'' | '"'))?;
        let mut text = String::new();
        loop {
            match self.chars.next()? {
                c if c == quote => return Some(text),
                '\\' => text.push(self.escape_sequence()?),
                c => text.push(c),
            }
        }
    }

    fn escape_sequence(&mut self) -> Option<char> {
        match self.chars.next()? {
            'n' => Some('\n'),
            't' => Some('\t'),
            'r' => Some('\r'),
            'x' => self.code_point(2),
            'u' => self.code_point(4),
            'U' => self.code_point(8),
            c @ ('\\' | '\'' | '"') => Some(c),
            _ => None,
        }
    }

    fn code_point(&mut self, digits: usize) -> Option<char> {
        let text: String = self.chars.by_ref().take(digits).collect();
        u32::from_str_radix(&text, 16).ok().and_then(char::from_u32)
    }

    fn word(&mut self) -> Option<Value> {
        let mut word = String::new();
        while let Some(c) = self.chars.next_if(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')) {
            word.push(c);
        }
        match word.as_str() {
            "True" => Some(true.into()),
            "False" => Some(false.into()),
            "None" => Some(Value::Null),
            number => number.parse::<Number>().ok().map(Value::Number),
        }
    }

    fn skip_whitespace(&mut self) {
        while self.chars.next_if(|c| c.is_whitespace()).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn python_literals_are_parsed() {
        let text = r#"{'a': 1, "b": [True, None, -2.5], 'it\'s': "say \"hi\"\n", 'c': (), 'd': {}, 'e': '\u00e4'}"#;
        let value = json!({"a": 1, "b": [true, null, -2.5], "it's": "say \"hi\"\n", "c": [], "d": {}, "e": "ä"});
        assert_eq!(parse(text), Some(value));
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in
            ["", "{", "{'a' 1}", "{'a': 1} x", "{1: 2}", "yes", "'open", "[1 2]", "{'a': 1}}", "<object at 0x1>"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse(&"[".repeat(100_000)), None);
    }
}
