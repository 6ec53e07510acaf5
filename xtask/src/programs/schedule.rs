//! Which test program begins next: within the machine's cores, the longest first, and those that must be
//! alone at the end.

/// How much of the machine a program needs while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// Tenths of a core.
    Tenths(u32),
    /// The whole machine: nothing else runs at the same time.
    Alone,
}

/// A program that waits for its turn, or is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Job {
    /// Which program, by its place in the caller's list.
    pub(crate) index: usize,
    pub(crate) share: Share,
    /// Roughly how long it takes.
    pub(crate) seconds: u32,
}

/// The programs that have not ended.
#[derive(Debug)]
pub(crate) struct Schedule {
    budget_tenths: u32,
    /// The programs that have not begun, the longest first.
    waiting: Vec<Job>,
    running: Vec<Job>,
}

impl Schedule {
    /// Creates a schedule of these programs on this many cores.
    pub(crate) fn new(cores: u32, mut jobs: Vec<Job>) -> Self {
        jobs.sort_by_key(|job| (std::cmp::Reverse(job.seconds), job.index));
        Self { budget_tenths: cores.max(1).saturating_mul(10), waiting: jobs, running: Vec::new() }
    }

    /// Returns the next program to begin now; `None` if another one must end first, or none waits.
    pub(crate) fn begin(&mut self) -> Option<Job> {
        let position = self.waiting.iter().position(|job| self.fits(job))?;
        let job = self.waiting.remove(position);
        self.running.push(job);
        Some(job)
    }

    /// Notes that this program has ended.
    pub(crate) fn ended(&mut self, index: usize) {
        self.running.retain(|job| job.index != index);
    }

    /// Returns whether none waits and none runs.
    pub(crate) fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    fn fits(&self, job: &Job) -> bool {
        match job.share {
            // At the end: otherwise the others would wait until it has ended, and it would wait until they
            // have.
            Share::Alone => {
                self.running.is_empty() && self.waiting.iter().all(|other| other.share == Share::Alone)
            }
            Share::Tenths(tenths) => {
                self.taken().saturating_add(tenths.min(self.budget_tenths)) <= self.budget_tenths
            }
        }
    }

    fn taken(&self) -> u32 {
        let tenths = |job: &Job| match job.share {
            Share::Alone => self.budget_tenths,
            Share::Tenths(tenths) => tenths.min(self.budget_tenths),
        };
        self.running.iter().map(tenths).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(index: usize, share: Share, seconds: u32) -> Job {
        Job { index, share, seconds }
    }

    fn begun(schedule: &mut Schedule) -> Vec<usize> {
        std::iter::from_fn(|| schedule.begin()).map(|job| job.index).collect()
    }

    #[test]
    fn the_longest_that_fit_begin_first() {
        let tenths = [10, 10, 3, 3, 5];
        let seconds = [20, 90, 40, 30, 60];
        let jobs = (0..5).map(|index| job(index, Share::Tenths(tenths[index]), seconds[index])).collect();
        let mut schedule = Schedule::new(2, jobs);
        assert_eq!(begun(&mut schedule), [1, 4, 2], "then 2 of 20 tenths are left");
        schedule.ended(4);
        assert_eq!(begun(&mut schedule), [3]);
        schedule.ended(1);
        assert_eq!(begun(&mut schedule), [0]);
    }

    /// Returns some number below `to`, a different one for each seed and index.
    fn number(seed: usize, index: usize, to: usize) -> usize {
        let mixed = seed.wrapping_mul(2_654_435_761) ^ index.wrapping_mul(40_503);
        (mixed.wrapping_mul(2_246_822_519) >> 8) % to
    }

    fn any_job(seed: usize, index: usize) -> Job {
        let small = |which, to| u32::try_from(number(seed, index + which, to)).unwrap();
        let share = if small(0, 7) == 0 { Share::Alone } else { Share::Tenths(1 + small(100, 30)) };
        job(index, share, small(200, 50))
    }

    /// Holds for any shares, and in whatever order the programs end.
    #[test]
    fn the_budget_is_never_exceeded_and_alone_is_alone() {
        for seed in 0..500 {
            let mut schedule = Schedule::new(2, (0..40).map(|index| any_job(seed, index)).collect());
            let mut done = Vec::new();
            while !schedule.is_over() {
                begun(&mut schedule);
                let running = &schedule.running;
                let alone = running.iter().filter(|job| job.share == Share::Alone).count();
                assert!(schedule.taken() <= 20, "seed {seed}: {running:?}");
                assert!(alone == 0 || running.len() == 1, "seed {seed}: {running:?}");
                assert!(!running.is_empty(), "seed {seed}: nothing runs and {:?} wait", schedule.waiting);
                let ended = running[number(seed, done.len() + 300, running.len())].index;
                schedule.ended(ended);
                done.push(ended);
            }
            done.sort_unstable();
            assert_eq!(done, (0..40).collect::<Vec<_>>(), "seed {seed}: each runs once");
        }
    }

    #[test]
    fn what_asks_for_more_than_there_is_gets_all_of_it() {
        let mut schedule = Schedule::new(1, vec![job(0, Share::Tenths(40), 1), job(1, Share::Tenths(1), 2)]);
        assert_eq!(begun(&mut schedule), [1]);
        schedule.ended(1);
        assert_eq!(begun(&mut schedule), [0]);
        schedule.ended(0);
        assert!(schedule.is_over());
    }
}
