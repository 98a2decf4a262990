//! Python's way to write values (`{'city': 'Oslo', 'ok': True}`), as texts hold it that Python agents made of arguments and answers.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::{Map, Number, Value};

/// How deep lists and dicts may lie in each other.
const MOST_DEPTH: usize = 64;

/// The value that `text` is in Python, of those that JSON has too: dicts with string keys, lists, tuples, strings, numbers, `True`, `False`
/// and `None`.
pub(super) fn parse(text: &str) -> Option<Value> {
    let mut reader = Reader { chars: text.chars().peekable(), depth: 0 };
    let value = reader.value()?;
    reader.skip_space();
    reader.chars.next().is_none().then_some(value)
}

struct Reader<'a> {
    chars: Peekable<Chars<'a>>,
    depth: usize,
}

impl Reader<'_> {
    fn value(&mut self) -> Option<Value> {
        self.skip_space();
        match *self.chars.peek()? {
            '{' => self.nested(Self::dict),
            '[' => self.nested(|reader| reader.list(']')),
            '(' => self.nested(|reader| reader.list(')')),
            '\'' | '"' => self.string().map(Value::String),
            _ => self.word(),
        }
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Option<Value>) -> Option<Value> {
        self.chars.next();
        self.depth += 1;
        let value = (self.depth <= MOST_DEPTH).then(|| read(self))?;
        self.depth -= 1;
        value
    }

    fn dict(&mut self) -> Option<Value> {
        let mut map = Map::new();
        while !self.closes('}') {
            self.skip_space();
            let key = self.string()?;
            self.skip_space();
            self.chars.next_if_eq(&':')?;
            map.insert(key, self.value()?);
            self.separator('}')?;
        }
        Some(Value::Object(map))
    }

    fn list(&mut self, close: char) -> Option<Value> {
        let mut items = Vec::new();
        while !self.closes(close) {
            items.push(self.value()?);
            self.separator(close)?;
        }
        Some(Value::Array(items))
    }

    fn closes(&mut self, close: char) -> bool {
        self.skip_space();
        self.chars.next_if_eq(&close).is_some()
    }

    /// A comma, or the end that comes next.
    fn separator(&mut self, close: char) -> Option<()> {
        self.skip_space();
        let ends = self.chars.peek() == Some(&close);
        (ends || self.chars.next_if_eq(&',').is_some()).then_some(())
    }

    fn string(&mut self) -> Option<String> {
        let quote = self.chars.next_if(|c| matches!(c, '\'' | '"'))?;
        let mut text = String::new();
        loop {
            match self.chars.next()? {
                c if c == quote => return Some(text),
                '\\' => text.push(self.escaped()?),
                c => text.push(c),
            }
        }
    }

    fn escaped(&mut self) -> Option<char> {
        match self.chars.next()? {
            'n' => Some('\n'),
            't' => Some('\t'),
            'r' => Some('\r'),
            'x' => self.code(2),
            'u' => self.code(4),
            'U' => self.code(8),
            c @ ('\\' | '\'' | '"') => Some(c),
            _ => None,
        }
    }

    fn code(&mut self, digits: usize) -> Option<char> {
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

    fn skip_space(&mut self) {
        while self.chars.next_if(|c| c.is_whitespace()).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_python_are_read() {
        let text = r#"{'a': 1, "b": [True, None, -2.5], 'it\'s': "say \"hi\"\n", 'c': (), 'd': {}, 'e': '\u00e4'}"#;
        let value = json!({"a": 1, "b": [true, null, -2.5], "it's": "say \"hi\"\n", "c": [], "d": {}, "e": "ä"});
        assert_eq!(parse(text), Some(value));
    }

    #[test]
    fn anything_else_is_none() {
        for text in
            ["", "{", "{'a' 1}", "{'a': 1} x", "{1: 2}", "yes", "'open", "[1 2]", "{'a': 1}}", "<object at 0x1>"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse(&"[".repeat(100_000)), None);
    }
}
