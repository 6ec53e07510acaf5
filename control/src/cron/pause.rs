//! Specs that count from the end of the last run: `@after 10m`.

use std::time::Duration;

use anyqueue::{Error, Result};

/// The prefix of such a spec.
const AFTER: &str = "@after";
/// The longest pause. A yearly run needs no such spec.
const LONGEST: Duration = Duration::from_hours(366 * 24);
/// The shortest and the longest time between checks whether a run has ended.
const LOOKS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The pause in a text; `None` if it is another kind of spec.
pub(super) fn of(text: &str) -> Option<Result<Duration>> {
    let rest =
        text.strip_prefix(AFTER).filter(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))?;
    let wrong = |error: humantime::DurationError| {
        Error::invalid(format!(
            "the spec `{text}` has no valid time ({error}): write `@after 10m` or `@after 1h 30s`"
        ))
    };
    Some(humantime::parse_duration(rest.trim()).map_err(wrong))
}

/// The text of the spec for a pause.
pub(super) fn text(pause: Duration) -> Result<String> {
    let said = humantime::format_duration(pause);
    if pause.subsec_nanos() != 0 || pause.is_zero() || pause > LONGEST {
        return Err(Error::invalid(format!(
            "a pause of {said} after the end of a run: give whole seconds, from 1s to {}",
            humantime::format_duration(LONGEST)
        )));
    }
    Ok(format!("{AFTER} {said}"))
}

/// The time between checks whether a run has ended.
pub(super) fn look(pause: Duration) -> Duration {
    (pause / 10).clamp(LOOKS.0, LOOKS.1)
}

#[cfg(test)]
mod tests {
    use super::super::spec::Spec;

    #[test]
    fn a_pause_is_read_and_written_and_a_wrong_one_says_what_to_write() {
        for (text, same) in [
            ("@after 10m", "@after 10m"),
            ("@after  90s ", "@after 1m 30s"),
            ("@after 1h 1s", "@after 1h 1s"),
        ] {
            let spec: Spec = text.parse().unwrap();
            assert_eq!(spec.as_str(), same);
            assert_eq!(spec.as_str().parse::<Spec>().unwrap(), spec);
        }
        for (text, why) in [
            ("@after", "@after 10m"),
            ("@after soon", "@after 10m"),
            ("@after 0s", "from 1s"),
            ("@after 500ms", "whole seconds"),
            ("@after 5years", "from 1s to"),
            ("@afternoon", "there is no spec"),
        ] {
            let error = text.parse::<Spec>().unwrap_err();
            assert!(error.message().contains(why), "{text}: {error}");
        }
    }
}
