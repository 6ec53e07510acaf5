//! How much of the machine each test program needs: measured once, kept in one table.

use super::schedule::Share;

/// What one program needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) share: Share,
    /// Roughly how long it takes on two cores while others run. This only decides the order.
    pub(crate) seconds: u32,
    /// The number of tests to run at once, if these mostly wait and the program would run only as many as
    /// there are cores.
    pub(crate) threads: Option<u32>,
}

/// A program without a row is short and computes all the time.
const UNKNOWN: Needs = Needs { share: Share::Tenths(10), seconds: 5, threads: None };

/// Package and target, its share of the machine, roughly how many seconds it takes, its threads if they are
/// limited, and why. A new program needs a row only if it is long or mostly waits. Programs that measure run
/// alone.
type Row = (&'static str, Share, u32, Option<u32>, &'static str);

const TABLE: &[Row] = &[
    (
        "anyqueue-sqs/conformance",
        Share::Tenths(18),
        150,
        None,
        "two emulators, a Python process each, late beside others",
    ),
    ("anyqueue-sqs/fifo", Share::Tenths(18), 130, None, "the same"),
    ("anyqueue-sqs/behaviour", Share::Tenths(5), 240, None, "an emulator, with pauses"),
    (
        "anyqueue-rabbitmq/behaviour",
        Share::Tenths(11),
        800,
        None,
        "brokers start, four seconds of a core each",
    ),
    (
        "anyqueue-rabbitmq/conformance",
        Share::Tenths(19),
        240,
        None,
        "a broker that makes thousands of queues: late while others run",
    ),
    (
        "anyqueue-worker/proof",
        Share::Tenths(14),
        117,
        None,
        "its leases are short: little may run at the same time",
    ),
    (
        "anyqueue-server/python",
        Share::Tenths(4),
        360,
        None,
        "starts every server, and waits for leases to pass",
    ),
    ("anyqueue-cli/command", Share::Tenths(9), 210, Some(4), "waits for processes and servers"),
    ("anyqueue-postgres/behaviour", Share::Tenths(10), 210, Some(4), "waits for time-outs and servers"),
    ("anyqueue-postgres/conformance", Share::Tenths(19), 160, None, "sixteen cases at once"),
    ("anyqueue-redis/behaviour", Share::Tenths(5), 155, Some(4), "waits for time-outs and servers"),
    ("anyqueue-redis/cluster", Share::Tenths(17), 58, None, "the same, six servers: late while others run"),
    (
        "anyqueue-redis/conformance",
        Share::Tenths(17),
        50,
        None,
        "sixteen cases at once, late while others run",
    ),
    (
        "anyqueue-faults/kills",
        Share::Tenths(7),
        250,
        None,
        "waits for leases to end, dozens of cases at once",
    ),
    ("anyqueue-faults/visible", Share::Tenths(3), 30, None, "waits for leases to end"),
    ("anyqueue-sqlite/behaviour", Share::Tenths(5), 80, Some(4), "waits for locks and leases"),
    ("anyqueue-sqlite/conformance", Share::Tenths(12), 50, None, "sixteen cases at once"),
    ("anyqueue-sqlite/faulty_children", Share::Tenths(4), 42, None, "waits for processes"),
    ("anyqueue-memory/conformance", Share::Tenths(4), 43, None, "waits for leases to end"),
    ("anyqueue-memory/beside", Share::Tenths(4), 47, None, "waits for leases to end"),
    ("anyqueue-testkit/servers", Share::Tenths(6), 90, None, "starts every server"),
    ("anyqueue-testkit/proxy", Share::Alone, 5, None, "measures delays and rates"),
    ("anyqueue-server/browser", Share::Alone, 65, None, "browsers, a dozen processes each"),
    ("anyqueue-server/millions", Share::Alone, 180, None, "measures what ten million ends cost"),
    ("anyqueue-control/cron", Share::Tenths(7), 90, None, "an oracle that computes, and waits for clocks"),
    ("anyqueue-control/limits", Share::Tenths(15), 50, Some(4), "waits for servers"),
    ("anyqueue-examples/guides", Share::Tenths(3), 80, None, "starts every server"),
];

impl Needs {
    /// Returns what the program of this name needs.
    pub(crate) fn of(name: &str) -> Self {
        let row = TABLE.iter().find(|row| row.0 == name);
        row.map_or(UNKNOWN, |&(_, share, seconds, threads, _)| Self { share, seconds, threads })
    }
}

/// Returns the rows that belong to none of these programs.
pub(crate) fn unknown(names: &[String]) -> Vec<&'static str> {
    TABLE.iter().map(|row| row.0).filter(|row| !names.iter().any(|name| name == row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_a_row_gets_a_core() {
        assert_eq!(Needs::of("some/new"), UNKNOWN);
        assert_eq!(UNKNOWN.share, Share::Tenths(10));
    }

    #[test]
    fn rows_are_unique_and_those_of_no_program_are_named() {
        let mut names: Vec<String> = TABLE.iter().map(|row| row.0.to_owned()).collect();
        assert_eq!(unknown(&names), [] as [&str; 0]);
        let gone = names.pop().unwrap();
        assert_eq!(unknown(&names), [gone], "no name stands twice");
    }
}
