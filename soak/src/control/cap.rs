//! How many tasks ran at once, according to those who ran them.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;

use anyqueue::MessageId;

use super::herd::{Disrupted, Disruption};
use super::record::{Note, What};

/// How long before a crowd it is of interest what was done to its processes.
const RECENT_NS: u64 = 15_000_000_000;

/// One run of a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    process: u32,
    from_ns: u64,
    until_ns: u64,
}

/// Returns the runs, and how many of them neither ended nor were in a process that was killed.
pub(super) fn runs(notes: &[Note], disrupted: &[Disrupted]) -> (Vec<Run>, usize) {
    let mut open: HashMap<(u32, MessageId), VecDeque<u64>> = HashMap::new();
    let mut runs = Vec::new();
    for note in notes {
        let begun = open.entry((note.process, note.task)).or_default();
        match note.what {
            What::Begun => begun.push_back(note.at_ns),
            What::Done | What::Stopped => runs.extend(begun.pop_front().map(|from_ns| Run {
                process: note.process,
                from_ns,
                until_ns: note.at_ns,
            })),
        }
    }
    let mut endless = 0;
    for ((process, _), begun) in open {
        let was_killed = disrupted.iter().any(|it| it.process == process && it.how == Disruption::Killed);
        endless += if was_killed { 0 } else { begun.len() };
        runs.extend(begun.into_iter().map(|from_ns| Run { process, from_ns, until_ns: u64::MAX }));
    }
    (cut(runs, disrupted), endless)
}

/// Cuts runs short: in a process that was killed they ended then. In a process that was frozen beyond its
/// permits they are left out from then on, because a limit cannot hold for them.
fn cut(mut runs: Vec<Run>, disrupted: &[Disrupted]) -> Vec<Run> {
    let grave = disrupted.iter().filter(|it| it.how != Disruption::Frozen);
    for it in grave {
        for run in runs.iter_mut().filter(|run| run.process == it.process) {
            if run.from_ns < it.until_ns && run.until_ns > it.from_ns {
                run.until_ns = it.from_ns.max(run.from_ns);
            }
        }
    }
    runs
}

/// Returns the maximum number of these that ever ran at once.
pub(super) fn most_at_once(runs: impl IntoIterator<Item = Run>) -> i64 {
    let mut steps: Vec<(u64, i64)> = Vec::new();
    for run in runs {
        steps.extend([(run.from_ns, 1), (run.until_ns, -1)]);
    }
    // At the same moment, ends come first.
    steps.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, step) in steps {
        now += step;
        most = most.max(now);
    }
    most
}

/// Describes the runs at the first moment at which there were more than `cap`, and what was done to their
/// processes shortly before, for anyone who looks for the cause.
pub(super) fn crowd(runs: &[Run], disrupted: &[Disrupted], cap: i64) -> String {
    let at = |ns: u64| runs.iter().filter(move |run| run.from_ns <= ns && ns < run.until_ns);
    let crowded = |run: &&Run| i64::try_from(at(run.from_ns).count()).is_ok_and(|count| count > cap);
    let Some(first) = runs.iter().filter(crowded).map(|run| run.from_ns).min() else { return String::new() };
    let ms = |ns: u64| (i128::from(ns) - i128::from(first)) / 1_000_000;
    let mut text = String::new();
    for run in at(first) {
        let _ = write!(text, "; worker {} from {} to {} ms", run.process, ms(run.from_ns), ms(run.until_ns));
    }
    let recent = |it: &&Disrupted| {
        it.from_ns <= first
            && it.until_ns >= first.saturating_sub(RECENT_NS)
            && at(first).any(|run| run.process == it.process)
    };
    for it in disrupted.iter().filter(recent) {
        let (from, until) = (ms(it.from_ns), ms(it.until_ns));
        let _ = write!(text, "; {:?} {} from {from} to {until} ms", it.how, it.process);
    }
    text
}

impl Run {
    pub(super) fn began_before(&self, at_ns: u64) -> bool {
        self.from_ns < at_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(what: What, task: u8, process: u32, at_ns: u64) -> Note {
        Note { what, task: MessageId::from_bytes([task; 16]), process, at_ns }
    }

    fn disrupted(how: Disruption, process: u32, from_ns: u64, until_ns: u64) -> Disrupted {
        Disrupted { process, how, from_ns, until_ns }
    }

    /// Two tasks in process 1 from 0 and 5 on, and one in process 2 from 10 on; those of process 1 end at 20.
    fn notes() -> Vec<Note> {
        let begun = [(1, 1, 0), (2, 1, 5), (3, 2, 10)]
            .map(|(task, process, at)| note(What::Begun, task, process, at));
        let ended = [note(What::Done, 1, 1, 20), note(What::Stopped, 2, 1, 20), note(What::Done, 3, 2, 30)];
        begun.into_iter().chain(ended).collect()
    }

    #[test]
    fn a_crowd_is_told_with_what_was_done_to_it() {
        let disrupted = [disrupted(Disruption::Frozen, 1, 2, 4), disrupted(Disruption::Killed, 9, 2, 4)];
        let (runs, _) = runs(&notes(), &disrupted);
        assert_eq!(crowd(&runs, &disrupted, 3), "");
        let told = crowd(&runs, &disrupted, 2);
        assert!(
            told.contains("worker 2 from 0") && told.contains("Frozen 1") && !told.contains('9'),
            "{told}"
        );
    }

    #[test]
    fn what_runs_at_once_is_counted_over_all_processes() {
        let (runs, endless) = runs(&notes(), &[]);
        assert_eq!((most_at_once(runs.iter().copied()), endless), (3, 0));
        assert_eq!(most_at_once(runs.into_iter().filter(|run| run.began_before(10))), 2);
    }

    #[test]
    fn one_that_ends_as_another_begins_did_not_run_with_it() {
        let notes = [(What::Begun, 1, 0), (What::Done, 1, 5), (What::Begun, 2, 5), (What::Done, 2, 9)];
        let notes = notes.map(|(what, task, at)| note(what, task, 1, at));
        assert_eq!(most_at_once(runs(&notes, &[]).0), 1);
    }

    #[test]
    fn a_killed_process_runs_nothing_more() {
        let mut notes = notes();
        notes.retain(|note| note.process == 2 || note.what == What::Begun);
        let (alive, endless) = runs(&notes, &[]);
        assert_eq!((most_at_once(alive), endless), (3, 2));
        let (dead, endless) = runs(&notes, &[disrupted(Disruption::Killed, 1, 7, u64::MAX)]);
        assert_eq!((most_at_once(dead), endless), (2, 0));
    }

    #[test]
    fn only_who_is_frozen_beyond_its_permits_is_left_out_and_only_from_then_on() {
        for (how, most) in [(Disruption::Frozen, 3), (Disruption::FrozenBeyond, 2)] {
            let (runs, _) = runs(&notes(), &[disrupted(how, 1, 7, 15)]);
            assert_eq!(most_at_once(runs), most, "{how:?}");
        }
        let (later, _) = runs(&notes(), &[disrupted(Disruption::FrozenBeyond, 1, 12, 15)]);
        assert_eq!(most_at_once(later), 3);
        let (other, _) = runs(&notes(), &[disrupted(Disruption::FrozenBeyond, 2, 7, 8)]);
        assert_eq!(most_at_once(other), 3);
    }
}
