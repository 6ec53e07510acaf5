//! Messages of a FIFO queue that came along with the first of their group. Nobody else could be given them while that is held, so they are
//! held too, and handed out when their turn has come.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::held::Claim;
use crate::names::Place;
use crate::taken::Taken;

/// From so many groups on, those are looked for and forgotten of which every lease has ended.
const FIRST_PRUNE: usize = 1024;

type Group = (Place, Arc<str>);

/// Those behind the heads that this handle holds. A request brings at most nine of them, and every one is under a lease, which bounds them.
#[derive(Debug, Default)]
pub(crate) struct Behind(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    groups: HashMap<Group, VecDeque<Taken>>,
    prune_at: usize,
}

/// What is behind a head that is gone.
#[derive(Debug, Default)]
pub(crate) struct Following {
    /// The new head.
    pub(crate) next: Option<Taken>,
    /// Those whose leases have ended meanwhile: the server shows them by itself.
    pub(crate) ended: Vec<Taken>,
}

impl Behind {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds messages behind the first of their groups, in their order. Returns what was held of the same groups before: their leases have
    /// ended, or the server would not have given out these.
    pub(crate) fn hold(&self, behind: Vec<Taken>) -> Vec<Taken> {
        let mut state = self.lock();
        if state.groups.len() >= state.prune_at.max(FIRST_PRUNE) {
            let now = Instant::now();
            state.groups.retain(|_, group| group.iter().any(|taken| taken.claim.until > now));
            state.prune_at = 2 * state.groups.len();
        }
        let mut ended = Vec::new();
        let claimed = behind.first().map(|taken| taken.claim.claimed);
        for taken in behind {
            let Some(group) = group_of(&taken.claim) else { continue };
            let group = state.groups.entry(group).or_default();
            if group.front().is_some_and(|first| Some(first.claim.claimed) != claimed) {
                ended.extend(group.drain(..));
            }
            group.push_back(taken);
        }
        ended
    }

    /// The head of a group is gone for good.
    pub(crate) fn follow(&self, head: &Claim) -> Following {
        let Some(key) = group_of(head) else { return Following::default() };
        let mut state = self.lock();
        let Some(group) = state.groups.get_mut(&key) else { return Following::default() };
        let next = group.pop_front();
        if next.as_ref().is_some_and(|next| next.claim.until > Instant::now()) {
            if group.is_empty() {
                state.groups.remove(&key);
            }
            return Following { next, ended: Vec::new() };
        }
        let rest = state.groups.remove(&key).unwrap_or_default();
        Following { next: None, ended: next.into_iter().chain(rest).collect() }
    }

    /// The head of a group comes again: all behind it have to go back.
    pub(crate) fn take(&self, head: &Claim) -> Vec<Taken> {
        let key = group_of(head);
        key.and_then(|key| self.lock().groups.remove(&key)).map_or_else(Vec::new, Vec::from)
    }

    /// All that is held.
    pub(crate) fn take_all(&self) -> Vec<Taken> {
        self.lock().groups.drain().flat_map(|(_, group)| group).collect()
    }
}

fn group_of(claim: &Claim) -> Option<Group> {
    claim.group.as_ref().map(|group| (claim.place.clone(), group.clone()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyqueue::{MessageData, PartitionId};

    use super::*;

    fn taken(group: &str, claimed: Instant, lease: Duration) -> Taken {
        let place = Place::new(&PartitionId::new("p").unwrap(), 0);
        let mut claim = Claim::new(place, "receipt".into(), MessageData::new("x"), claimed, claimed + lease);
        claim.group = Some(group.into());
        Taken { claim, lease, age: Duration::ZERO, arrived: claimed, unreadable: None }
    }

    fn id(taken: &Taken) -> anyqueue::MessageId {
        taken.claim.message.id()
    }

    #[test]
    fn they_follow_one_by_one_each_group_by_itself() {
        let (behind, now) = (Behind::default(), Instant::now());
        let of = |group| taken(group, now, Duration::from_mins(1));
        let (first, second, other) = (of("a"), of("a"), of("b"));
        let (ids, head) = ([id(&first), id(&second)], of("a").claim);
        assert!(behind.hold(vec![first, other, second]).is_empty());
        for expected in ids {
            assert_eq!(behind.follow(&head).next.as_ref().map(id), Some(expected));
        }
        assert!(behind.follow(&head).next.is_none());
        assert_eq!(behind.take(&of("b").claim).len(), 1);
        assert!(behind.take_all().is_empty());
    }

    #[test]
    fn what_has_ended_follows_nobody_and_is_replaced_by_what_came_again() {
        let (behind, now) = (Behind::default(), Instant::now());
        let head = taken("a", now, Duration::ZERO).claim;
        behind.hold(vec![taken("a", now, Duration::ZERO), taken("a", now, Duration::from_mins(1))]);
        let following = behind.follow(&head);
        assert!(following.next.is_none());
        assert_eq!(following.ended.len(), 2, "whoever is behind it cannot go before it");
        behind.hold(vec![taken("a", now, Duration::ZERO)]);
        let later = taken("a", now + Duration::from_nanos(1), Duration::from_mins(1));
        assert_eq!(behind.hold(vec![later]).len(), 1);
        assert!(behind.follow(&head).next.is_some());
    }
}
