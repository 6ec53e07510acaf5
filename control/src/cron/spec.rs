//! The text that says when a schedule is due: five or six fields.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::{Error, Result};
use croner::Cron;
use croner::parser::{CronParser, Year};
use jiff::civil::{Date, DateTime, date};

use super::fields::Fields;
use super::impossible;
use super::pause;

/// The longest spec, in bytes.
pub const MAX_SPEC_BYTES: usize = 256;

/// When something runs, by local time: five fields (minute, hour, day of the month, month, day of the week),
/// or six with the second in front; or `@hourly`, `@daily`, `@weekly`, `@monthly` or `@yearly`.
/// Alternatively, how long after the end of its last run, independent of local time: `@after 10m`.
///
/// Fields are numbers, names (`MON`, `JAN`), lists `1,15`, ranges `9-17`, and steps `*/15`. The day of the
/// month can also be `L` (the last) and `15W` (the weekday nearest to the 15th), and the day of the week
/// `5#2` (the second Friday) and `5L` (the last Friday). If both days are restricted, one match is enough, as
/// in other crons; with `+` before the day of the week, both must match: `0 0 13 * +FRI`.
///
/// ```
/// use anyqueue_control::cron::Spec;
/// let spec: Spec = "*/15 9-17 * * MON-FRI".parse()?;
/// assert_eq!(spec.as_str(), "*/15 9-17 * * MON-FRI");
/// assert!("0 0 30 2 *".parse::<Spec>().is_err());
/// let pause: Spec = "@after 90s".parse()?;
/// assert_eq!(pause, Spec::after_completion(std::time::Duration::from_secs(90))?);
/// # Ok::<(), anyqueue::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Spec {
    text: Arc<str>,
    when: When,
}

/// The two kinds of specs.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum When {
    /// By local time.
    Clock {
        fields: Arc<Fields>,
        /// Whether its hours or minutes begin with `*`: then it runs whenever the clock shows a matching
        /// time. Otherwise it names fixed times, which each day has once.
        follows_clock: bool,
    },
    /// This long after the end of the last run.
    After(Duration),
}

impl Spec {
    /// Makes a spec that is due this long after the end of its last run, and for the first time this long
    /// after it is put: whole seconds, at most a year.
    ///
    /// # Errors
    /// [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) for any other pause.
    pub fn after_completion(pause: Duration) -> Result<Self> {
        let text = pause::text(pause)?;
        Ok(Self { text: text.into(), when: When::After(pause) })
    }

    /// The pause after the end of the last run, if this is such a spec.
    #[must_use]
    pub const fn pause(&self) -> Option<Duration> {
        match &self.when {
            When::After(pause) => Some(*pause),
            When::Clock { .. } => None,
        }
    }

    /// The text of the spec.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) const fn when(&self) -> &When {
        &self.when
    }
}

/// # Errors
/// [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) for a wrong field, which the error names, and for a
/// spec that never matches, such as the 31st of April; the error then says why, and suggests similar specs.
impl FromStr for Spec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        if let Some(pause) = pause::of(text) {
            return Self::after_completion(pause?);
        }
        let fields = fields(text)?;
        if let Some(name) = fields.empty() {
            return Err(Error::invalid(format!(
                "the spec `{text}` names no {name}: write `*` for all of them"
            )));
        }
        if !comes(&fields) {
            return Err(impossible::explain(text, &fields, is_possible));
        }
        let when = When::Clock { fields: Arc::new(fields), follows_clock: follows_clock(text) };
        Ok(Self { text: text.into(), when })
    }
}

/// The names of predefined specs.
const NICKNAMES: [&str; 6] = ["@hourly", "@daily", "@weekly", "@monthly", "@yearly", "@annually"];

fn fields(text: &str) -> Result<Fields> {
    if text.len() > MAX_SPEC_BYTES {
        return Err(Error::invalid(format!(
            "a spec of {} bytes: write at most {MAX_SPEC_BYTES}",
            text.len()
        )));
    }
    let count = text.split_whitespace().count();
    if text.starts_with('@') && !NICKNAMES.iter().any(|known| text.eq_ignore_ascii_case(known)) {
        return Err(Error::invalid(format!(
            "there is no spec `{text}`; there are {}, and `@after 10m`",
            NICKNAMES.join(", ")
        )));
    }
    if !text.starts_with('@') && !(5..=6).contains(&count) {
        return Err(Error::invalid(format!(
            "the spec `{text}` has {count} fields: write five (minute, hour, day of the month, month, day of the week), or six with the second \
             in front"
        )));
    }
    let parser = CronParser::builder().year(Year::Disallowed).build();
    let cron: Cron = parser
        .parse(text)
        .map_err(|error| Error::invalid(format!("the spec `{text}` is wrong: {error}")).with_source(error))?;
    Ok(Fields::new(cron))
}

fn is_possible(text: &str) -> bool {
    fields(text).is_ok_and(|fields| fields.empty().is_none() && comes(&fields))
}

/// The years in between are of all kinds: with each weekday as the first of January, with 365 and with 366
/// days.
const ALL_KINDS: (Date, Date) = (date(2000, 1, 1), date(2028, 1, 1));

/// Whether a day ever matches.
fn comes(fields: &Fields) -> bool {
    let (from, end): (DateTime, DateTime) = (ALL_KINDS.0.into(), ALL_KINDS.1.into());
    fields.first_in(from, end).is_some()
}

fn follows_clock(text: &str) -> bool {
    if text.starts_with('@') {
        return text.eq_ignore_ascii_case("@hourly");
    }
    let fields: Vec<_> = text.split_whitespace().collect();
    // The last five fields are the same with and without seconds.
    fields.iter().rev().skip(3).take(2).any(|field| field.starts_with('*'))
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spec({})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        text.parse::<Spec>().unwrap_err().message().to_owned()
    }

    #[test]
    fn what_never_comes_is_refused_with_the_reason_and_what_comes_near() {
        let april = refused("0 0 31 4 *");
        for near in ["April has 30 days", "`0 0 30 4 *`", "`0 0 L 4 *`", "`0 0 1 5 *`"] {
            assert!(april.contains(near), "{april}");
        }
        let february = refused("15 6 30 2 *");
        assert!(february.contains("`15 6 29 2 *`") && february.contains("`15 6 1 3 *`"), "{february}");
        assert!(refused("0 0 0 31 2,4,6 *").contains("`0 0 0 30 2,4,6 *`"));
        // The first is never the second Monday.
        let both = refused("0 0 1 * +MON#2");
        assert!(both.contains("`0 0 1 * *`") && both.contains("`0 0 * * MON#2`"), "{both}");
        for possible in ["0 0 29 2 *", "0 0 29 2 +MON", "0 0 31 * *", "0 0 31 4 MON", "0 0 L 2 *"] {
            possible.parse::<Spec>().unwrap();
        }
    }

    #[test]
    fn a_wrong_spec_says_what_is_wrong() {
        assert!(refused("* * *").contains("3 fields"));
        assert!(refused("0 0 1 1 * 2030 *").contains("7 fields"));
        assert!(refused("60 * * * *").contains("60"));
        assert!(refused("@sometimes").contains("@daily"));
        assert!(refused(", * * * *").contains("no minutes"));
        assert!(refused(&"1,".repeat(200)).contains("400 bytes"));
        assert!(refused("").contains("0 fields"));
    }

    #[test]
    fn whether_an_entry_follows_the_clock_is_told_by_its_hours_and_minutes() {
        for (text, follows) in [
            ("*/15 * * * *", true),
            ("0 */2 * * *", true),
            ("*/5 2 * * *", true),
            ("@hourly", true),
            ("@daily", false),
            ("30 2 * * *", false),
            ("* 30 2 * * *", false),
            ("0,30 1-3 * * *", false),
        ] {
            assert_eq!(follows_clock(text), follows, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_spec_or_an_error(text in "[0-9*,/#LW?+@A-Za-z -]{0,40}") {
            let _ = text.parse::<Spec>();
        }

        #[test]
        fn any_fields_are_a_spec_or_an_error(text in r"([0-9]{1,2}|\*|L|[0-9]{1,2}W|MON|[0-7]#[0-9]|[0-9]{1,2}-[0-9]{1,2}|\*/[0-9]{1,3})( ([0-9]{1,2}|\*|L|[0-9]{1,2}W|\+?MON|[0-7]#[0-9L])){4,5}") {
            let _ = text.parse::<Spec>();
        }
    }
}
