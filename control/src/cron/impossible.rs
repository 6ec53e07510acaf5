//! Why a spec never matches, and similar specs that do.

use anyqueue::Error;

use super::fields::Fields;

const MONTHS: [(&str, u16); 12] = [
    ("January", 31),
    ("February", 29),
    ("March", 31),
    ("April", 30),
    ("May", 31),
    ("June", 30),
    ("July", 31),
    ("August", 31),
    ("September", 30),
    ("October", 31),
    ("November", 30),
    ("December", 31),
];

/// The error for a spec with valid fields that never matches.
pub(super) fn explain(text: &str, fields: &Fields, is_possible: impl Fn(&str) -> bool) -> Error {
    let near: Vec<_> = candidates(text, fields)
        .into_iter()
        .filter(|candidate| is_possible(candidate))
        .map(|candidate| format!("`{candidate}`"))
        .collect();
    let nearest =
        if near.is_empty() { String::new() } else { format!("; similar specs: {}", near.join(", ")) };
    Error::invalid(format!("the spec `{text}` is never due: {}{nearest}", reason(fields)))
}

fn reason(fields: &Fields) -> String {
    let longest = longest(fields);
    match (longest, fields.days().first()) {
        (Some((name, length)), Some(day)) if *day > length => {
            format!("{name} has {length} days")
        }
        (None, _) => "it names no month".to_owned(),
        _ => "no day has both its day of the month and its day of the week".to_owned(),
    }
}

/// The longest of the months.
fn longest(fields: &Fields) -> Option<(&'static str, u16)> {
    let month = |number: u16| MONTHS.get(usize::from(number).checked_sub(1)?).copied();
    fields.months().into_iter().filter_map(month).max_by_key(|(_, length)| *length)
}

fn candidates(text: &str, fields: &Fields) -> Vec<String> {
    let written: Vec<_> = text.split_whitespace().collect();
    let Some(front) = written.len().checked_sub(3) else { return Vec::new() };
    let with = |day: Option<&str>, month: Option<&str>, weekday: Option<&str>| {
        let replaced = [day, month, weekday];
        let rest = written.iter().skip(front).zip(replaced).map(|(old, new)| new.unwrap_or(old));
        let all: Vec<_> = written.iter().take(front).copied().chain(rest).collect();
        all.join(" ")
    };
    let weekday = written.last().copied().unwrap_or("*");
    if weekday.starts_with('+') {
        return vec![with(None, None, Some("*")), with(Some("*"), None, weekday.get(1..))];
    }
    let last_day = longest(fields).map(|(_, length)| length.to_string());
    let next_month = fields.months().last().map(|month| (month % 12 + 1).to_string());
    vec![
        with(last_day.as_deref(), None, None),
        with(Some("L"), None, None),
        with(Some("1"), next_month.as_deref(), None),
    ]
}
