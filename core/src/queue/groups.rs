//! Pulling whole groups.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use super::delivery::Delivery;
use super::handle::Queue;
use super::pull::Pull;
use crate::error::Result;
use crate::status::QueueMessageStatus;
use crate::storage::SettleOutcome;

impl Pull {
    /// Pulls whole groups: the first message of each group together with those behind it that are ready, up
    /// to `max_members` in all, so that related work can be done together. [`max`](Self::max) still counts
    /// messages, so the last group may be cut short.
    ///
    /// ```
    /// use anyqueue::{MessageData, Queue, QueueMessageStatus::Processed};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
    /// for change in ["name", "address", "photo"] {
    ///     queue.push("profiles", MessageData::new(change).with_group("user 17")).await?;
    /// }
    /// for mut changes in queue.pull("profiles").max(100).whole_groups(10).await? {
    ///     assert_eq!((changes.group(), changes.members().len()), (Some("user 17"), 3));
    ///     changes.settle(Processed).await;
    /// }
    /// # Ok::<(), anyqueue::Error>(()) }).unwrap();
    /// ```
    pub fn whole_groups(mut self, max_members: usize) -> PullGroups {
        self.group_members = max_members;
        PullGroups(self)
    }
}

/// A pull of whole groups, set up by [`Pull::whole_groups`]; await it to run it.
#[derive(Debug)]
#[must_use = "a pull does nothing until it is awaited"]
pub struct PullGroups(Pull);

/// Returns groups that hold up to `max` messages in all, or none when the wait is over. A message without a
/// group comes as a group of its own.
///
/// # Errors
/// As for a [`Pull`], and [`Unsupported`](crate::ErrorKind::Unsupported) if more than one member at once is
/// asked for where [whole groups](crate::adapter::Capabilities::whole_groups) are not declared.
///
/// # Cancellation
/// As for a [`Pull`].
impl IntoFuture for PullGroups {
    type Output = Result<Vec<GroupDelivery>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (queue, max_members) = (self.0.queue.clone(), self.0.group_members);
            let mut groups: Vec<GroupDelivery> = Vec::new();
            for delivery in self.0.await? {
                match groups.last_mut().filter(|last| last.is_joined_by(&delivery, max_members)) {
                    Some(group) => group.members.push(delivery),
                    None => groups.push(GroupDelivery { queue: queue.clone(), members: vec![delivery] }),
                }
            }
            Ok(groups)
        })
    }
}

/// Members of one group that are held together, in the group's order; at least one. A message without a group
/// is the only member.
///
/// Each member is a [`Delivery`] of its own and can be settled by itself. Until all of them have been
/// settled, no other consumer gets a member of the group. Dropping the group releases the members that were
/// not settled; they are delivered again in the same order.
#[must_use = "dropping a group releases its members"]
pub struct GroupDelivery {
    queue: Queue,
    members: Vec<Delivery>,
}

impl GroupDelivery {
    /// Returns the name of the group; `None` for a message without one.
    pub fn group(&self) -> Option<&str> {
        self.members.first().and_then(group_of)
    }

    /// Returns the members, first to last.
    pub fn members(&self) -> &[Delivery] {
        &self.members
    }

    /// Returns the members, first to last, to settle or extend each by itself.
    pub fn members_mut(&mut self) -> &mut [Delivery] {
        &mut self.members
    }

    /// Returns the members, first to last.
    pub fn into_members(self) -> Vec<Delivery> {
        self.members
    }

    /// Settles all members with the same status, in as few calls as the backend allows. Returns one result
    /// per member, in order, as [`Delivery::settle`] would: some may fail or be lost while others succeed.
    ///
    /// # Cancellation
    /// Once polled, all settlements are completed even if the future is dropped.
    pub async fn settle(&mut self, status: QueueMessageStatus) -> Vec<Result<SettleOutcome>> {
        let all = self.members.iter_mut().map(|member| (member, status.clone()));
        self.queue.settle_many(all).await
    }

    fn is_joined_by(&self, delivery: &Delivery, max_members: usize) -> bool {
        let group = group_of(delivery);
        self.members.len() < max_members && group.is_some() && group == self.group()
    }
}

fn group_of(delivery: &Delivery) -> Option<&str> {
    delivery.message().options().group.as_deref()
}

impl fmt::Debug for GroupDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupDelivery").field("members", &self.members).finish_non_exhaustive()
    }
}
