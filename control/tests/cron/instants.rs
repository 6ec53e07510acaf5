//! When specs come: against the oracle around every change of every zone's clocks, for arbitrary specs, and by hand for the odd ones.

use std::time::{Duration, Instant, SystemTime};

use anyqueue_control::cron::{Gap, Overlap, Spec, Timetable};
use jiff::tz::{TimeZone, db};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use crate::oracle::{Known, Window};

/// Set: all zones and specs, not only a sample.
const ALL: &str = "ANYQUEUE_CRON_ALL";
/// The seed of the sample; each day has its own without it.
const SEED: &str = "ANYQUEUE_CRON_SEED";

/// Zones whose clocks were changed in unusual ways.
const ODD: [&str; 14] = [
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Pacific/Fakaofo",
    "Antarctica/Troll",
    "Europe/Dublin",
    "Asia/Beirut",
    "America/Havana",
    "America/Santiago",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Pyongyang",
    "America/Caracas",
    "America/Sao_Paulo",
    "Europe/Moscow",
];

fn specs() -> Vec<Known> {
    vec![
        Known::every(15),
        Known::every(7),
        Known::at(&[], &[]),
        Known::at(&[0], &[]),
        Known::at(&[30], &[2]),
        Known::at(&[0], &[0]),
        Known::at(&[0, 15, 30, 45], &[0, 1, 2, 3, 23]),
        Known::at(&[59], &[0, 1, 2, 23]),
        Known::at(&[5, 10], &[0, 2]).on(&[1, 13, 25, 26, 27, 28, 29, 30, 31], &[]),
        Known::at(&[0, 30], &[1, 2, 3]).on(&[1], &[0]),
        Known { hours: Some(vec![2]), ..Known::every(20) },
    ]
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Holds the specs against the oracle around each change from 2000 to 2037. Returns how many there were.
fn check_changes(name: &str, specs: &[Known]) -> usize {
    let zone = TimeZone::get(name).unwrap();
    let rules = [(Gap::Shift, Overlap::First), (Gap::Skip, Overlap::Last)];
    let timetables: Vec<_> = specs
        .iter()
        .flat_map(|known| {
            rules.map(|(gap, overlap)| (known, gap, overlap, known.timetable(name, gap, overlap)))
        })
        .collect();
    let changes = zone.following(at("2000-01-01T00:00:00Z"));
    let mut count = 0;
    for change in changes.take_while(|change| change.timestamp() < at("2038-01-01T00:00:00Z")) {
        let before = zone.to_offset(change.timestamp() - SignedDuration::from_secs(1));
        let jump = SignedDuration::from_secs(i64::from(change.offset().seconds() - before.seconds())).abs();
        let side = jump + SignedDuration::from_mins(90);
        let window = Window::around(&zone, change.timestamp(), side, jump + SignedDuration::from_mins(2));
        for (known, gap, overlap, timetable) in &timetables {
            window.check_with(timetable, known, *gap, *overlap);
        }
        count += 1;
    }
    count
}

fn zones() -> Vec<String> {
    db().available()
        .map(|name| name.as_str().to_owned())
        .filter(|name| TimeZone::get(name).is_ok_and(|zone| zone.iana_name().is_some()))
        .collect()
}

#[test]
fn around_every_change_of_the_clocks_the_oracle_finds_the_same() {
    let (names, specs) = (zones(), specs());
    let begun = Instant::now();
    if std::env::var_os(ALL).is_some() {
        assert!(names.len() > 400, "only {} zones", names.len());
        let changes: usize = names.iter().map(|name| check_changes(name, &specs)).sum();
        println!("{} zones, {changes} changes, {} specs: {:?}", names.len(), specs.len(), begun.elapsed());
        return;
    }
    let days = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() / 86_400;
    let seed = std::env::var(SEED).map_or(days, |seed| seed.parse().unwrap());
    println!("{SEED}={seed} repeats this; {ALL}=1 tries all");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut changes = 0;
    for name in ODD {
        changes += check_changes(name, &specs[random.usize(..4)..][..4]);
    }
    while begun.elapsed() < Duration::from_secs(5) {
        let name = random.choice(&names).unwrap();
        let spec = random.choice(&specs).unwrap();
        check_changes(name, std::slice::from_ref(spec));
    }
    assert!(changes > 500, "{changes}");
}

fn local(spec: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let timetable = Timetable::new(spec.parse().unwrap(), zone.parse().unwrap());
    let from = SystemTime::from(at(after));
    timetable.after(from).take(count).map(|found| found.local()).collect()
}

#[test]
fn odd_gaps_move_fixed_times_to_the_first_moment_after_once() {
    for (zone, spec, after, expected) in [
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00:00Z", "2026-10-04T02:30:00+11:00"),
        ("Pacific/Apia", "0 12 30 12 *", "2011-12-29T12:00:00Z", "2011-12-31T00:00:00+14:00"),
        ("Antarctica/Troll", "0,30 1,2 * * *", "2026-03-29T00:59:00Z", "2026-03-29T03:00:00+02:00"),
        ("Europe/Dublin", "30 1 * * *", "2026-03-28T12:00:00Z", "2026-03-29T02:00:00+01:00"),
        ("America/Havana", "0 0 * * *", "2026-03-07T12:00:00Z", "2026-03-08T01:00:00-04:00"),
        ("Asia/Beirut", "30 0 * * *", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00+03:00"),
        ("America/Santiago", "0 0 * * *", "2026-09-05T12:00:00Z", "2026-09-06T01:00:00-03:00"),
        ("Africa/Cairo", "1 0 * * *", "2026-04-23T12:00:00Z", "2026-04-24T01:00:00+03:00"),
    ] {
        assert_eq!(local(spec, zone, after, 1), [expected], "{zone}");
    }
    let once = local("0,30 1,2,3 * * *", "Antarctica/Troll", "2026-03-29T00:59:00Z", 3);
    assert_eq!(once, ["2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00", "2026-03-30T01:00:00+02:00"]);
}

#[test]
fn every_quarter_of_an_hour_is_that_also_when_clocks_are_changed() {
    for zone in ODD.into_iter().filter(|zone| *zone != "Asia/Pyongyang" && *zone != "America/Caracas") {
        let timetable = Timetable::new("*/15 * * * *".parse().unwrap(), zone.parse().unwrap());
        let start = SystemTime::from(at("2023-01-01T00:00:00Z"));
        let times: Vec<_> = timetable.after(start).map(|found| found.at()).take(40_000).collect();
        for pair in times.windows(2) {
            assert_eq!(pair[1].duration_since(pair[0]).unwrap(), Duration::from_mins(15), "{zone}");
        }
    }
}

#[test]
fn rare_times_are_found_and_what_is_too_far_is_not_looked_for() {
    let begun = Instant::now();
    assert_eq!(local("0 0 29 2 +MON", "UTC", "2072-03-01T00:00:00Z", 1), ["2112-02-29T00:00:00+00:00"]);
    assert_eq!(
        local("0 0 0 29 2 *", "Europe/Berlin", "2096-03-01T00:00:00Z", 1),
        ["2104-02-29T00:00:00+01:00"]
    );
    let spec: Spec = "0 0 29 2 +MON".parse().unwrap();
    let rare = Timetable::new(spec, "Europe/Berlin".parse().unwrap());
    for edge in ["9999-12-30T20:00:00Z", "-009999-01-03T00:00:00Z", "9990-01-01T00:00:00Z"] {
        let _ = (rare.next_after(at(edge).into()), rare.latest_before(at(edge).into()));
    }
    let last = rare.latest_before(at("2112-02-01T00:00:00Z").into()).unwrap();
    assert_eq!(last.local(), "2072-02-29T00:00:00+01:00");
    // Day by day it would take hours.
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
}

fn subset(all: std::ops::Range<i8>) -> impl Strategy<Value = Option<Vec<i8>>> {
    let few = proptest::sample::subsequence(all.collect::<Vec<_>>(), 1..5);
    prop_oneof![Just(None), few.prop_map(Some)]
}

fn known() -> impl Strategy<Value = Known> {
    let steps = prop_oneof![3 => Just(None), 1 => (2_i8..30).prop_map(Some)];
    (subset(0..60), subset(0..24), subset(1..29), subset(1..13), subset(0..7), steps).prop_map(
        |(minutes, hours, days, months, weekdays, steps)| {
            let known = steps.map(Known::every);
            let minutes = known.map_or(minutes, |known| known.minutes);
            Known { minutes, hours, days, months, weekdays, steps }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_specs_come_when_the_oracle_says(
        known in known(),
        zone in proptest::sample::select(ODD.to_vec()),
        hour in 0_i64..333_000,
        shift in any::<bool>(),
        first in any::<bool>(),
    ) {
        let gap = if shift { Gap::Shift } else { Gap::Skip };
        let overlap = if first { Overlap::First } else { Overlap::Last };
        let moment = at("2000-01-01T00:00:00Z") + SignedDuration::from_hours(hour);
        let window = Window::wide(&TimeZone::get(zone).unwrap(), moment, SignedDuration::from_hours(40));
        window.check(&known, zone, gap, overlap);
    }
}
