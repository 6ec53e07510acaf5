//! Groups that a pull claims whole.

pub(super) mod claimed;
pub(super) mod crowd;
pub(super) mod ended;
pub(super) mod held;
pub(super) mod left;

use std::time::Duration;

use anyqueue::adapter::{PullRequest, RawDelivery};
use anyqueue::{MessageData, MessageId, PartitionId};

use crate::clause::Clause;
use crate::context::{Client, Context};
use crate::need::Need;
use crate::verdict::CaseResult;

const NEEDS: &[Need] = &[Need::WholeGroups];

/// More than any group of these cases has.
const ALL: usize = 20;

fn member(c: &Context) -> MessageData {
    c.message().with_group("g")
}

async fn push<const N: usize>(
    c: &Context,
    p: &PartitionId,
    messages: [MessageData; N],
) -> CaseResult<[MessageId; N]> {
    let ids = messages.each_ref().map(MessageData::id);
    c.client().push(p, &messages).await?;
    Ok(ids)
}

/// Pushes members of one group that differ only in their ids.
async fn push_members<const N: usize>(c: &Context, p: &PartitionId) -> CaseResult<[MessageId; N]> {
    push(c, p, std::array::from_fn(|_| member(c))).await
}

/// Creates a request whose leases last as long as the case.
fn whole(client: &Client, max: usize, members: usize, wait: Duration) -> PullRequest {
    client.request(max, wait).with_group_members(members)
}

/// Makes one pull for this many members of each group.
async fn pull_members(c: &Context, p: &PartitionId, members: usize) -> CaseResult<Vec<RawDelivery>> {
    let client = c.client();
    client.pull_with(p, whole(client, ALL, members, c.timing().soon)).await
}

/// Makes one pull for whole groups, which must return exactly these, in this order.
async fn claim(
    c: &Context,
    what: &str,
    p: &PartitionId,
    expected: &[MessageId],
) -> CaseResult<Vec<RawDelivery>> {
    let got = pull_members(c, p, ALL).await?;
    c.in_order(Clause::WholeGroups, what, expected, &got)?;
    Ok(got)
}

/// Does the same, but returns an array that can be destructured.
async fn claim_exact<const N: usize>(
    c: &Context,
    what: &str,
    p: &PartitionId,
    expected: [MessageId; N],
) -> CaseResult<[RawDelivery; N]> {
    let got = claim(c, what, p, &expected).await?;
    let told = |got: Vec<_>| c.failed(Clause::WholeGroups, &expected, what, format!("{}", got.len()));
    got.try_into().map_err(told)
}

/// Makes one pull, which must return exactly these, in this order, and removes them.
async fn claims(c: &Context, what: &str, p: &PartitionId, expected: &[MessageId]) -> CaseResult {
    let got = claim(c, what, p, expected).await?;
    c.client().remove(&got).await
}

/// Judges that nothing comes for as long as a wake-up may take, neither to a pull of single messages nor to
/// one of whole groups.
async fn nothing(c: &Context, p: &PartitionId, expected: &str) -> CaseResult {
    let client = c.client();
    let got = client.pull_with(p, whole(client, ALL, ALL, Duration::ZERO)).await?;
    c.in_order(Clause::WholeGroups, expected, &[], &got)?;
    client.nothing(p, c.timing().slack, Clause::WholeGroups, expected).await
}
