//! Errors of guests, cut to a size that fits into a log line and into an answer to a model.

use super::wit;

/// Most bytes of an error's message.
const MAX_MESSAGE: usize = 16 << 10;

/// Most bytes of an error's code.
const MAX_CODE: usize = 64;

/// Stands for what was cut off.
const CUT: char = '…';

/// An error with a code and a message of bounded sizes.
pub(crate) fn bounded(error: wit::Error) -> wit::Error {
    wit::Error { code: bounded_code(error.code), message: bounded_message(error.message) }
}

/// The begin of an error's message.
pub(crate) fn bounded_message(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        cut(&mut message, MAX_MESSAGE - CUT.len_utf8());
        message.push(CUT);
    }
    message
}

/// The begin of an error's code.
pub(crate) fn bounded_code(mut code: String) -> String {
    cut(&mut code, MAX_CODE);
    code
}

fn cut(text: &mut String, most: usize) {
    text.truncate(text.floor_char_boundary(most));
    text.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_cut_to_a_bounded_size_between_characters() {
        let long = wit::Error { code: "ä".repeat(100), message: "ü".repeat(MAX_MESSAGE) };
        let error = bounded(long);
        assert_eq!(error.code, "ä".repeat(32));
        assert_eq!(error.message.len(), MAX_MESSAGE - 1);
        assert!(error.message.ends_with("ü…"));
    }

    #[test]
    fn an_error_that_fits_stays_as_it_is() {
        let error = bounded(wit::Error { code: "C".repeat(64), message: "m".repeat(16 << 10) });
        assert_eq!((error.code, error.message), ("C".repeat(64), "m".repeat(16 << 10)));
    }
}
