//! Passwords of URLs are not shown.

use std::borrow::Cow;

/// What ends a URL in running text.
const ENDS: [char; 6] = [' ', '\t', '\n', '\'', '"', '>'];

/// The text with the password of each URL in it replaced. A URL that was cut before its `@` loses all after its user.
pub(crate) fn hide(text: &str) -> Cow<'_, str> {
    if !text.contains("://") {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        let (url, next) = after.split_at(after.find(ENDS).unwrap_or(after.len()));
        shown.push_str(before);
        shown.push_str("://");
        shown.push_str(&without_password(url));
        rest = next;
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

/// `user:password@host/path` with the password replaced. The last `@` counts: passwords may hold some that are not escaped.
fn without_password(url: &str) -> Cow<'_, str> {
    if let Some((user_info, host)) = url.rsplit_once('@') {
        return match user_info.split_once(':') {
            Some((user, _)) => format!("{user}:***@{host}").into(),
            None => url.into(),
        };
    }
    match url.split_once(':') {
        Some((user, after)) if !begins_with_port(after) => format!("{user}:***").into(),
        _ => url.into(),
    }
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
        ] {
            assert_eq!(hide(text), shown);
        }
    }
}
