//! Numbers and times in a form for people.

use std::fmt::Display;
use std::time::{Duration, SystemTime};

/// A duration in at most two units.
pub(crate) fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// A time in UTC, to the second.
pub(crate) fn moment(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string().replace('T', " ").replace('Z', "")
}

/// The same with its zone, where nothing else tells the zone.
pub(crate) fn utc(time: SystemTime) -> String {
    format!("{} UTC", moment(time))
}

pub(crate) fn moment_or_dash(time: Option<SystemTime>) -> String {
    time.map_or_else(|| "–".to_owned(), moment)
}

pub(crate) fn short_or_dash(duration: Option<Duration>) -> String {
    duration.map_or_else(|| "–".to_owned(), short)
}

/// The beginning of a text.
pub(crate) fn cut(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(bytes);
    format!("{}… ({} bytes in all)", text.get(..end).unwrap_or_default(), text.len())
}

/// A count, or a dash if it is unknown.
#[allow(clippy::ref_option, reason = "so templates hand it over")]
pub(crate) fn number(count: &Option<u64>) -> String {
    count.map_or_else(|| "–".to_owned(), |count| count.to_string())
}

/// A count, followed by the words for one or for several.
pub(crate) fn many<N: Copy + Display + PartialEq + From<u8>>(count: N, one: &str, more: &str) -> String {
    let what = if count == N::from(1) { one } else { more };
    format!("{count} {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        let of = |millis| short(Duration::from_millis(millis));
        assert_eq!([of(0), of(999), of(59_999)], ["0 ms", "999 ms", "59 s"]);
        assert_eq!([of(60_000), of(3_600_000), of(90_000_000)], ["1 min 0 s", "1 h 0 min", "1 d 1 h"]);
    }

    #[test]
    fn one_is_not_many() {
        let of = |count: u64| many(count, "letter", "letters");
        assert_eq!([of(0), of(1), of(11)], ["0 letters", "1 letter", "11 letters"]);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("short", 10), "short");
        assert_eq!(cut("äää", 3), "ä… (6 bytes in all)");
    }
}
