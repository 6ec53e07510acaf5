//! Groups that go on too early, or in the wrong order, when members that were claimed together end.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{
    Action, AmendQueueStorage as _, Extension, InspectQueueStorage as _, Lease, PullQueueStorage as _,
    PullRequest, RawDelivery, Settlement, async_trait,
};
use anyqueue::{Amend, MAX_PAGE, MessageId, MessageState, Page, PartitionId, SettleOutcome};
use anyqueue_conformance::Fault;

use super::{BREAKS, group_of, groups, is_whole};
use crate::quirk::{Client, Entry, Extended, Kept, Pulled, Quirk, Settled, plain, subtle};
use crate::right::Right;

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::FirstEndFreesGroup, BREAKS, || ends(Wrong::FreesNext)),
    plain(Fault::ReleasedMemberOvertakes, BREAKS, || ends(Wrong::ReturnedOvertakes)),
    plain(Fault::ReleasedMemberToEnd, BREAKS, || ends(Wrong::ReleasedToEnd)),
    plain(Fault::PostponedMemberFreesGroup, BREAKS, || ends(Wrong::PostponedFrees)),
    subtle(Fault::LeaseEndLeavesGroup, BREAKS, || Arc::<LeaseEnds>::default()),
];

/// Members that were taken out of their group, and still show it.
#[derive(Debug, Default)]
struct Ungrouped(Kept<HashMap<MessageId, Arc<str>>>);

impl Ungrouped {
    async fn take_out(&self, right: &Right, place: &PartitionId, id: MessageId, group: &Arc<str>) {
        self.0.lock().insert(id, Arc::clone(group));
        right.amend(place, &[id], &Amend::new().without_group()).await;
    }

    fn show_group(&self, delivery: &mut RawDelivery) {
        if let Some(group) = self.0.lock().get(&delivery.lease.id) {
            delivery.message = delivery.message.clone().with_group(Arc::clone(group));
        }
    }
}

/// The members still held of a group that was claimed whole.
#[derive(Debug)]
struct Claim {
    group: Arc<str>,
    held: Vec<Lease>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    FreesNext,
    ReturnedOvertakes,
    ReleasedToEnd,
    PostponedFrees,
}

impl Wrong {
    fn is_done_by(self, action: &Action) -> bool {
        match self {
            Self::FreesNext => matches!(action, Action::Remove | Action::Move { .. }),
            Self::ReturnedOvertakes => matches!(action, Action::Release | Action::Retry),
            Self::ReleasedToEnd => matches!(action, Action::Release),
            Self::PostponedFrees => matches!(action, Action::Postpone { .. }),
        }
    }
}

/// What goes wrong when a member ends while others are held that were claimed with it.
#[derive(Debug)]
struct Ends {
    wrong: Wrong,
    claims: Kept<Vec<Claim>>,
    ungrouped: Ungrouped,
}

fn ends(wrong: Wrong) -> Arc<dyn Quirk> {
    Arc::new(Ends { wrong, claims: Kept::default(), ungrouped: Ungrouped::default() })
}

impl Ends {
    fn note(&self, deliveries: &[RawDelivery]) {
        let claims = groups(deliveries).into_iter().filter_map(|members| {
            let group = Arc::clone(group_of(members.first()?)?);
            Some(Claim { group, held: members.into_iter().map(|member| member.lease).collect() })
        });
        self.claims.lock().extend(claims);
    }

    /// Returns the group, if others are held that were claimed with this member.
    fn end(&self, lease: &Lease) -> Option<Arc<str>> {
        let mut claims = self.claims.lock();
        let claim = claims.iter_mut().find(|claim| claim.held.contains(lease))?;
        claim.held.retain(|held| held != lease);
        (!claim.held.is_empty()).then(|| Arc::clone(&claim.group))
    }

    async fn go_wrong(&self, client: &Client, Lease { partition, id, .. }: &Lease, group: &Arc<str>) {
        let right = &client.right;
        match self.wrong {
            Wrong::FreesNext => {
                if let Some(next) = first_in_line(right, partition, group).await {
                    self.ungrouped.take_out(right, partition, next, group).await;
                }
            }
            Wrong::ReturnedOvertakes | Wrong::PostponedFrees => {
                self.ungrouped.take_out(right, partition, *id, group).await;
            }
            Wrong::ReleasedToEnd => {
                right.amend(partition, &[*id], &Amend::new().without_group().disable()).await;
                let back = Amend::new().with_group(Arc::clone(group)).enable();
                right.amend(partition, &[*id], &back).await;
            }
        }
    }
}

/// Returns the oldest waiting message of the group.
async fn first_in_line(right: &Right, partition: &PartitionId, group: &Arc<str>) -> Option<MessageId> {
    let page = right.browse(partition, Page::of(MAX_PAGE)).await.ok()?;
    let waits = |it: &&anyqueue::Browsed| {
        it.state == MessageState::Ready && it.message.options().group.as_ref() == Some(group)
    };
    page.iter().find(waits).map(|found| found.message.id())
}

#[async_trait]
impl Quirk for Ends {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let is_whole = is_whole(partition, &request);
        let mut deliveries = client.right.pull(partition, request).await?;
        if is_whole {
            self.note(&deliveries);
        }
        for delivery in &mut deliveries {
            self.ungrouped.show_group(delivery);
        }
        Ok(deliveries)
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let mut answers = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            let Settlement { lease, action, .. } = settlement;
            let answer = client.settle_by(settlement, action.clone()).await;
            if matches!(answer, Ok(SettleOutcome::Settled))
                && let Some(group) = self.end(lease)
                && self.wrong.is_done_by(action)
            {
                self.go_wrong(client, lease, &group).await;
            }
            answers.push(answer);
        }
        answers
    }
}

/// Ends the leases of whole groups itself, shortly before the correct backend would.
#[derive(Debug, Default)]
struct LeaseEnds {
    ungrouped: Arc<Ungrouped>,
    extended: Arc<Kept<HashSet<Lease>>>,
}

/// How much longer the correct backend holds them.
const LONGER: Duration = Duration::from_millis(200);

impl LeaseEnds {
    /// Ends these leases after this time, and takes the members that are still held then out of their group.
    fn end_in(&self, client: &Client, after: Duration, members: Vec<(Lease, Arc<str>)>) {
        let (right, ungrouped) = (client.right.clone(), Arc::clone(&self.ungrouped));
        let extended = Arc::clone(&self.extended);
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            for (lease, group) in members {
                if extended.lock().contains(&lease) {
                    continue;
                }
                let answers = right.settle(&[Settlement::new(lease.clone(), Action::Retry)]).await;
                if matches!(answers.as_slice(), [Ok(SettleOutcome::Settled)]) {
                    ungrouped.take_out(&right, &lease.partition, lease.id, &group).await;
                }
            }
        });
    }
}

#[async_trait]
impl Quirk for LeaseEnds {
    async fn pull(&self, client: &Client, partition: &PartitionId, mut request: PullRequest) -> Pulled {
        let (is_whole, lease) = (is_whole(partition, &request), request.lease);
        if is_whole {
            request.lease += LONGER;
        }
        let mut deliveries = client.right.pull(partition, request).await?;
        if is_whole {
            let member = |it: &RawDelivery| Some((it.lease.clone(), Arc::clone(group_of(it)?)));
            self.end_in(client, lease, deliveries.iter().filter_map(member).collect());
        }
        for delivery in &mut deliveries {
            self.ungrouped.show_group(delivery);
            if is_whole {
                delivery.lease_until = delivery.lease_until.and_then(|until| until.checked_sub(LONGER));
            }
        }
        Ok(deliveries)
    }

    async fn extend(&self, client: &Client, extensions: &[Extension]) -> Extended {
        self.extended.lock().extend(extensions.iter().map(|it| it.lease.clone()));
        client.right.extend(extensions).await
    }
}
