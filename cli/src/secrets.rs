//! Hides passwords in URLs: they are never shown.

use std::borrow::Cow;

/// What ends a word in running text.
const ENDS: [char; 6] = [' ', '\t', '\n', '\'', '"', '>'];
/// URL options whose values are secret.
const OPTIONS: [&str; 4] = ["password=", "passwd=", "secret=", "token="];

/// Replaces every password that can be recognised by its place. A URL that was cut off before its `@` loses
/// everything after the user. When in doubt, too much is hidden.
pub(crate) fn hide(text: &str) -> Cow<'_, str> {
    if !text.contains([':', '=']) {
        return Cow::Borrowed(text);
    }
    let mut parts = text.split("://");
    let mut shown = without_bare(parts.next().unwrap_or_default());
    for after in parts {
        shown.push_str("://");
        shown.push_str(&without_password(after));
    }
    OPTIONS.iter().fold(shown, |shown, option| without_value(&shown, option)).into()
}

/// Hides the password in what follows `://`, up to the next one: `user:password@host/path` and more text. The
/// last `@` counts: a password may contain any unescaped character, even those that otherwise end a word.
fn without_password(after: &str) -> String {
    if let Some((user_info, rest)) = after.rsplit_once('@') {
        return match user_info.split_once(':') {
            Some((user, _)) => format!("{user}:***@{rest}"),
            None => after.to_owned(),
        };
    }
    let (url, rest) = after.split_at(after.find(ENDS).unwrap_or(after.len()));
    match url.split_once(':') {
        Some((user, password)) if !begins_with_port(password) => format!("{user}:***{rest}"),
        _ => after.to_owned(),
    }
}

/// The same for words like `scheme:user:password@host`, where the slashes were forgotten.
fn without_bare(text: &str) -> String {
    let hidden = |word: &str| match word.rsplit_once('@') {
        Some((before, host)) if before.contains(':') => {
            format!("{}:***@{host}", before.split(':').next().unwrap_or_default())
        }
        _ => word.to_owned(),
    };
    text.split_inclusive(ENDS).map(hidden).collect()
}

/// Replaces the value that follows each `option`, in whatever case the option is written.
fn without_value(text: &str, option: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.to_ascii_lowercase().find(option) {
        let (before, value) = rest.split_at(place + option.len());
        let end = value.find(|c| c == '&' || ENDS.contains(&c)).unwrap_or(value.len());
        shown.push_str(before);
        shown.push_str(if end == 0 { "" } else { "***" });
        rest = value.get(end..).unwrap_or_default();
    }
    shown.push_str(rest);
    shown
}

fn begins_with_port(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    digits > 0 && text.as_bytes().get(digits).is_none_or(|next| b"/?,#".contains(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_wherever_urls_stand() {
        for (text, shown) in [
            ("no URL", "no URL"),
            ("postgres://u:secret@h/db", "postgres://u:***@h/db"),
            ("'redis://:secret@h:1/' and amqp://g:s@b", "'redis://:***@h:1/' and amqp://g:***@b"),
            ("x://u:a@b@host/p", "x://u:***@host/p"),
            ("x://u:secr", "x://u:***"),
            ("redis://h:6379/0", "redis://h:6379/0"),
            ("redis://h:6379", "redis://h:6379"),
            ("postgres://user@h/db", "postgres://user@h/db"),
            ("sqlite:///srv/a.db", "sqlite:///srv/a.db"),
            ("postgres://u:hun'ter 2\">@h/db is down", "postgres://u:***@h/db is down"),
            ("cannot open postgres:u:secret@h/db", "cannot open postgres:***@h/db"),
            ("q?password=secret&x=1 PassWord=a b", "q?password=***&x=1 PassWord=*** b"),
            ("stored under a@example.org", "stored under a@example.org"),
            ("to: a@example.org", "to: a@example.org"),
        ] {
            assert_eq!(hide(text), shown);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_can_be_looked_through(text in ".*") {
            let _ = hide(&text);
        }

        #[test]
        fn a_password_is_hidden_in_any_surroundings(
            before in "[a-z ,:'\"]{0,10}", password in "[A-Z0-9!$#]{6,12}", after in "(/[a-z]{0,5})?( [a-z ]{0,9})?",
        ) {
            let shown = hide(&format!("{before} redis://user:{password}@host{after}")).into_owned();
            proptest::prop_assert!(!shown.contains(&password), "{}", shown);
        }
    }
}
