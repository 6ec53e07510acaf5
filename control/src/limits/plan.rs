//! From the entry of a limit, and what a process needs, to the change that gets it.

use std::time::{Duration, Instant, SystemTime};

use anyqueue::Result;
use anyqueue::control::{Change, Entry};

use super::gcra::Gcra;
use super::held::{Block, Held, Tokens};
use super::holders::{HolderRecord, millis, nanos};
use super::record::Record;
use super::share::{Need, Part, part};
use super::stock::{Stock, count};
use crate::entry::{encode, unchanged};

/// The first pause after permits were requested in vain; it doubles up to the time between two beats.
pub(super) const PAUSE: Duration = Duration::from_millis(250);
/// The pause between two returns of permits.
const GIVE_PAUSE: Duration = Duration::from_millis(50);

/// The process that plans.
#[derive(Debug)]
pub(super) struct Me {
    pub(super) session: String,
    /// The time between beats.
    pub(super) every: Duration,
    /// How long a block is valid.
    pub(super) valid_for: Duration,
}

/// When a question was sent, by this process's clock, and the time of the server at that moment or later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) sent_at: Instant,
    pub(super) now: SystemTime,
}

/// What becomes of a limit once `change` is made.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) change: Option<Change>,
    part: Option<Part>,
    /// Whether to write the entry even if it says this already: an earlier change of this process may still
    /// be under way, and must not come after it.
    regains: bool,
    /// The state of the rate after the change, and how much of it was taken.
    gcra: Option<(Gcra, usize)>,
    /// How long it takes until missing permits may be free, if some are missing.
    retry_in: Option<Duration>,
    /// How long it takes until the rate allows the next start, if it does not now.
    start_in: Option<Duration>,
    moment: Moment,
}

impl Me {
    /// How long tasks have to stop before their permits end. No task starts in an equal time before that.
    pub(super) fn lead(&self) -> Duration {
        self.valid_for / 6
    }

    /// Plans what to do about a limit. From here on, permits that others may get are no longer used, whether
    /// the change is made or not.
    ///
    /// # Errors
    /// If the entry cannot be written.
    pub(super) fn plan(
        &self,
        stock: &mut Stock,
        name: &str,
        entry: &Entry,
        record: Record,
        moment: Moment,
    ) -> Result<Plan> {
        let before = record.clone();
        let mut planned = Plan {
            name: name.to_owned(),
            change: None,
            part: None,
            regains: false,
            gcra: None,
            retry_in: None,
            start_in: None,
            moment,
        };
        let mut record = record;
        self.plan_cap(stock, &mut record, &mut planned);
        plan_rate(stock, &mut record, &mut planned);
        if record != before || planned.regains {
            let change = Change::put(entry.key.clone(), unchanged(Some(entry)), encode(&record)?);
            planned.change = Some(change);
        }
        Ok(planned)
    }

    fn plan_cap(&self, stock: &mut Stock, record: &mut Record, plan: &mut Plan) {
        let (who, leaves, moment) = (stock.who.clone(), stock.is_leaving, plan.moment);
        let Some(held) = stock.limits.get_mut(&plan.name) else { return };
        let Some(cap) = record.cap else {
            held.cap = None;
            return;
        };
        let (wanted, partition) = (held.wanted, held.partition.clone());
        let has = held.cap.as_ref().map_or(0, |block| block.size);
        let usage = stock.usage(&partition);
        let (in_use, started, peak) = (count(usage.in_use), count(usage.started), count(usage.peak));
        let need = Need {
            in_use,
            started,
            peak: if leaves { in_use } else { peak },
            wanted: if leaves { 0 } else { count(wanted) },
        };
        let others = record.holders.others(&self.session);
        let part = part(cap, need, others);
        let missing = need.in_use.saturating_add(need.wanted).saturating_sub(part.block);
        let there = record.holders.holder(&self.session);
        let was_lost = there.is_none() && others.held.saturating_add(started) > cap;
        let now_ms = millis(moment.now);
        let is_old = there.is_none_or(|there| there.until_ms < self.until(now_ms, self.every / 2));
        let differs = there.map(|there| (there.held, there.wanted)) != Some((part.block, missing));
        // This process had less than that, but others changed the entry first: it holds more only once that
        // is written.
        let regains = has < size(part.block);
        let renews = is_old || differs || regains;
        let fits = !renews || record.holders.hold(self.holder(&who, part, missing, now_ms));
        let part = if fits { part } else { Part { block: 0, ..part } };
        let missing = need.in_use.saturating_add(need.wanted).saturating_sub(part.block);
        let lapse = record.holders.first_lapse(&self.session, moment.now);
        lower(stock, plan, part, was_lost);
        plan.part = renews.then_some(part);
        plan.regains = regains && fits;
        plan.retry_in = (missing > 0).then(|| lapse.unwrap_or(Duration::MAX));
    }

    pub(super) fn until(&self, now_ms: u64, less: Duration) -> u64 {
        let valid = self.valid_for.saturating_sub(less).as_millis();
        now_ms.saturating_add(u64::try_from(valid).unwrap_or(u64::MAX))
    }

    pub(super) fn holder(&self, who: &str, part: Part, wanted: u64, now_ms: u64) -> HolderRecord {
        HolderRecord {
            who: who.to_owned(),
            session: self.session.clone(),
            held: part.block,
            wanted,
            until_ms: self.until(now_ms, Duration::ZERO),
            valid_ms: self.until(0, Duration::ZERO),
        }
    }

    /// Takes up the result of a plan.
    pub(super) fn commit(&self, stock: &mut Stock, plan: &Plan, now: Instant) {
        let Some(partition) = stock.limits.get(&plan.name).map(|held| held.partition.clone()) else { return };
        let in_use = stock.in_use(&partition).0;
        let Some(held) = stock.limits.get_mut(&plan.name) else { return };
        if let (Some(part), true) = (plan.part, plan.change.is_some()) {
            self.hold(held, part, plan.moment.sent_at);
        }
        if let Some((gcra, taken)) = plan.gcra {
            let seen = nanos(plan.moment.now);
            held.rate.get_or_insert_with(|| Tokens::new(gcra, seen, now)).see(gcra, seen, taken, now);
        } else {
            held.rate = None;
        }
        (held.wanted, held.waiting, held.hint_at) = (0, 0, None);
        self.pause(held, plan, in_use, now);
    }

    fn hold(&self, held: &mut Held, part: Part, sent_at: Instant) {
        let (until, lead) = (sent_at + self.valid_for, self.lead());
        held.cap = Some(Block {
            size: size(part.block),
            most: size(part.most),
            starts_until: until.checked_sub(lead * 2).unwrap_or(sent_at),
            revoke_at: until.checked_sub(lead).unwrap_or(sent_at),
            is_revoked: false,
        });
    }

    /// Sets when to ask again for what is missing.
    fn pause(&self, held: &mut Held, plan: &Plan, in_use: usize, now: Instant) {
        held.give_at = Some(now + GIVE_PAUSE);
        held.next_start = plan.start_in.map(|start_in| now + start_in.min(PAUSE).min(self.every));
        let Some(retry_in) = plan.retry_in else {
            // More permits are in use than are held, since some were taken in the meantime: they are
            // requested, but never without a pause.
            let lacks = held.cap.as_ref().is_some_and(|block| in_use > block.size);
            (held.pause, held.next_try) = (Duration::ZERO, lacks.then(|| now + PAUSE.min(self.every)));
            return;
        };
        held.pause = (held.pause * 2).clamp(PAUSE.min(self.every), self.every);
        held.next_try = Some(now + held.pause.min(retry_in));
    }
}

/// Stops using what others may get, even if the response to the change is lost.
fn lower(stock: &mut Stock, plan: &Plan, part: Part, was_lost: bool) {
    let Some(held) = stock.limits.get_mut(&plan.name) else { return };
    let block = held.cap.get_or_insert_with(|| Block::none(plan.moment.sent_at));
    let is_surprised = was_lost && block.size > 0 && !block.is_revoked;
    block.size = block.size.min(size(part.block));
    block.most = size(part.most);
    if is_surprised {
        // Others have permits that this process considered its own: it was frozen in a way that its clock did
        // not show.
        block.is_revoked = true;
        let partition = held.partition.clone();
        stock.revoke(&partition);
    }
}

fn plan_rate(stock: &Stock, record: &mut Record, plan: &mut Plan) {
    let Some(held) = stock.limits.get(&plan.name) else { return };
    let Some(mut gcra) = record.gcra(plan.moment.now) else { return };
    let left = held.rate.as_ref().map_or(0, |tokens| tokens.left(plan.moment.sent_at));
    let wanted = if stock.is_leaving { 0 } else { held.waiting.saturating_sub(left) };
    let now_ns = nanos(plan.moment.now);
    let taken = gcra.take(count(wanted), now_ns);
    if taken > 0 || record.tat_ns > gcra.tat_ns() {
        record.tat_ns = gcra.tat_ns();
    }
    if taken < count(wanted) {
        plan.start_in = Some(Duration::from_nanos(gcra.until_next(now_ns)));
    }
    plan.gcra = Some((gcra, size(taken)));
}

pub(super) fn size(permits: u64) -> usize {
    usize::try_from(permits).unwrap_or(usize::MAX)
}
