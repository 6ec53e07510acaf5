//! Untrusted text on a terminal: characters that could control the terminal or deceive its reader are
//! escaped.

use std::fmt::Write as _;

/// Whether a terminal obeys this character, or it can make text look like other text: control characters,
/// marks that change the direction of writing, invisible characters, and line and paragraph separators beyond
/// ASCII.
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_deceptive(c) && !stays(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// The text on one line, with such characters escaped.
pub(crate) fn printable(text: &str) -> String {
    escaped(text, |_| false)
}

/// The text with its lines kept, and such characters escaped.
pub(crate) fn harmless(text: &str) -> String {
    escaped(text, |c| c == '\n' || c == '\t')
}

/// The same for bytes that may not be text.
pub(crate) fn harmless_bytes(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        shown.push_str(&harmless(chunk.valid()));
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}"); // a String takes all
        }
    }
    shown
}

/// Equivalent JSON with such characters escaped. They occur only within strings.
pub(crate) fn harmless_json(text: &str) -> String {
    if !text.contains(is_deceptive) {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_deceptive(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_deceives_is_escaped_and_lines_stay_where_they_are_wanted() {
        let text = "a\u{9b}31m\u{202e}b\u{2066}\u{200b}c\u{7f}\r\n\td\u{e0041}ä✓";
        assert_eq!(printable(text), "a\\u{9b}31m\\u{202e}b\\u{2066}\\u{200b}c\\u{7f}\\r\\n\\td\\u{e0041}ä✓");
        assert_eq!(harmless(text), "a\\u{9b}31m\\u{202e}b\\u{2066}\\u{200b}c\\u{7f}\\r\n\td\\u{e0041}ä✓");
        assert_eq!(harmless_bytes(b"a\x1b[1m\xff\nb"), "a\\u{1b}[1m\\xff\nb");
    }

    #[test]
    fn json_says_the_same_without_what_a_terminal_obeys() {
        let value = serde_json::json!({ "payload": "a\u{9b}31m\u{202e}\u{7f}\u{e0041}\u{1b}ä\"\\" });
        let text = harmless_json(&value.to_string());
        assert!(!text.chars().any(is_deceptive), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_is_shown_is_obeyed(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100)) {
            let text = String::from_utf8_lossy(&bytes);
            proptest::prop_assert!(!printable(&text).contains(is_deceptive));
            for shown in [harmless(&text), harmless_bytes(&bytes)] {
                proptest::prop_assert!(!shown.contains(|c| is_deceptive(c) && c != '\n' && c != '\t'));
            }
        }

        #[test]
        fn json_of_any_text_says_the_same(text in "\\PC*|.*") {
            let json = harmless_json(&serde_json::to_string(&text).unwrap());
            proptest::prop_assert!(!json.contains(is_deceptive));
            proptest::prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }
}
