//! How many permits of a cap one process holds.

/// What one process needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Need {
    /// The permits that its tasks have.
    pub(super) in_use: u64,
    /// How many of those belong to running tasks. The process holds these whatever the cap says.
    pub(super) started: u64,
    /// The most it needed at once recently: it keeps that many while nobody else wants them.
    pub(super) peak: u64,
    /// How many more permits it could use now.
    pub(super) wanted: u64,
}

/// What the other processes have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Others {
    pub(super) held: u64,
    pub(super) wanted: u64,
    /// How many of them hold or want something.
    pub(super) claimants: u64,
}

/// The part that one process gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// How many permits it holds.
    pub(super) block: u64,
    /// Tasks start only while fewer than this are running: permits above it go to others as soon as they are
    /// free.
    pub(super) most: u64,
}

/// Computes the part of a process: what it needs, as far as that is free. If others want more than is free,
/// each process keeps a fair share, and what the others do not want. Tasks that run beyond the cap, because
/// the cap was lowered or others have their permits, continue, and nothing replaces them; tasks that have not
/// started yet wait.
pub(super) fn part(cap: u64, need: Need, others: Others) -> Part {
    let free = cap.saturating_sub(others.held);
    let most = if others.wanted == 0 {
        cap
    } else {
        let fair = cap.div_ceil(others.claimants.saturating_add(1));
        fair.max(cap.saturating_sub(others.held.saturating_add(others.wanted)))
    };
    let spare = if others.wanted == 0 { need.peak } else { 0 };
    let needed = spare.max(need.in_use.saturating_add(need.wanted));
    let most = most.min(free);
    Part { block: needed.min(most).max(need.in_use.min(free)).max(need.started), most }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(in_use: u64, wanted: u64) -> Need {
        Need { in_use, started: in_use, peak: in_use, wanted }
    }

    fn others(held: u64, wanted: u64, claimants: u64) -> Others {
        Others { held, wanted, claimants }
    }

    #[test]
    fn a_process_gets_what_it_needs_as_far_as_that_is_free() {
        assert_eq!(part(10, need(0, 4), others(0, 0, 0)).block, 4);
        assert_eq!(part(10, need(2, 4), others(7, 0, 2)).block, 3);
        assert_eq!(part(10, need(0, 4), others(12, 0, 2)).block, 0);
    }

    #[test]
    fn what_is_idle_goes_back_and_what_runs_does_not() {
        assert_eq!(part(10, need(1, 0), others(0, 0, 0)).block, 1);
        assert_eq!(part(2, need(5, 3), others(1, 0, 1)).block, 5, "the cap was lowered");
        let idle = Need { peak: 4, ..need(0, 0) };
        assert_eq!(part(10, idle, others(6, 0, 1)).block, 4, "nobody wants them");
        assert_eq!(part(10, idle, others(6, 1, 1)).block, 0);
    }

    #[test]
    fn who_has_more_than_its_share_starts_nothing_beyond_it_while_others_want() {
        assert_eq!(part(10, need(10, 5), others(0, 9, 1)), Part { block: 10, most: 5 });
        assert_eq!(part(10, need(3, 5), others(0, 9, 1)), Part { block: 5, most: 5 });
        assert_eq!(part(10, need(10, 5), others(0, 1, 1)), Part { block: 10, most: 9 }, "it wants but one");
    }

    #[test]
    fn what_ends_beyond_the_cap_makes_room_for_nothing() {
        assert_eq!(part(1, need(1, 1), others(1, 0, 1)), Part { block: 1, most: 0 });
        assert_eq!(part(4, need(5, 1), others(3, 1, 1)), Part { block: 5, most: 1 });
    }

    #[test]
    fn what_others_have_by_now_is_not_held_for_what_has_not_started() {
        let unstarted = Need { started: 1, ..need(3, 0) };
        assert_eq!(part(4, unstarted, others(1, 0, 1)).block, 3, "they are free");
        assert_eq!(part(4, unstarted, others(2, 0, 1)).block, 2, "one of them is");
        assert_eq!(part(4, unstarted, others(4, 0, 1)).block, 1, "it runs");
        assert_eq!(part(4, unstarted, others(1, 5, 1)).block, 3, "others that want more do not take it");
    }

    #[test]
    fn everybody_has_at_least_one_and_nothing_is_left_unused() {
        assert_eq!(part(1, need(1, 3), others(0, 5, 9)).most, 1);
        assert_eq!(part(10, need(3, 5), others(6, 9, 2)).block, 4, "3 + 3 + 3 would leave one");
    }
}
