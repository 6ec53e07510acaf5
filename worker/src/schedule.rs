//! Which partition gets the next free slot.

/// In about how many rounds slots are dealt, however many there are.
const ROUNDS: usize = 1024;

/// A number of slots that was calculated.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
fn slots_of(quota: f64) -> usize {
    quota as usize
}

/// How partitions share the slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// By weight: the one that was served least for its weight is next, so that none starves.
    #[default]
    Fair,
    /// In the order in which they were added: a later one is served only when those before it have nothing to do.
    Strict,
}

/// What the schedule knows of one partition.
#[derive(Debug)]
struct Share {
    weight: f64,
    /// Tasks started, divided by the weight. The least is next.
    served: f64,
}

/// A partition that could use a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) partition: usize,
    /// Slots that it has: running, claimed, or promised to a pull under way.
    pub(crate) used: usize,
    /// Slots that it may have in all.
    pub(crate) cap: usize,
}

#[derive(Debug)]
pub(crate) struct Schedule {
    sharing: Sharing,
    slots: usize,
    shares: Vec<Share>,
    /// Where the one served last stood: whoever comes back from having nothing to do starts here, without credit for it.
    now: f64,
}

impl Schedule {
    pub(crate) fn new(sharing: Sharing, slots: usize, weights: impl Iterator<Item = u32>) -> Self {
        let share = |weight: u32| Share { weight: f64::from(weight.max(1)), served: 0.0 };
        Self { sharing, slots, shares: weights.map(share).collect(), now: 0.0 }
    }

    /// A task of this partition starts.
    pub(crate) fn started(&mut self, partition: usize) {
        if let Some(share) = self.shares.get_mut(partition) {
            self.now = self.now.max(share.served);
            share.served += 1.0 / share.weight;
        }
    }

    /// A partition that had nothing to do may have something again.
    pub(crate) fn woken(&mut self, partition: usize) {
        if let Some(share) = self.shares.get_mut(partition) {
            share.served = share.served.max(self.now);
        }
    }

    /// Whose turn it is.
    pub(crate) fn next(&self, claims: &[Claim]) -> Option<usize> {
        let granted = vec![0; claims.len()];
        let quotas = self.quotas(claims);
        let position = self.choose(claims, &granted, &quotas)?;
        claims.get(position).map(|claim| claim.partition)
    }

    /// Deals `room` slots out to the partitions that could use them; returns how many each claim gets.
    pub(crate) fn deal(&self, room: usize, claims: &[Claim]) -> Vec<usize> {
        let mut granted = vec![0; claims.len()];
        if let ([claim], [all]) = (claims, granted.as_mut_slice()) {
            *all = room.min(claim.cap.saturating_sub(claim.used));
            return granted;
        }
        let quotas = self.quotas(claims);
        let (mut left, most) = (room, room.div_ceil(ROUNDS));
        while left > 0 {
            let Some(position) = self.choose(claims, &granted, &quotas) else { break };
            let (Some(claim), Some(count), Some(quota)) =
                (claims.get(position), granted.get_mut(position), quotas.get(position))
            else {
                break;
            };
            let used = claim.used.saturating_add(*count);
            // Several at once where there are many, and not beyond what is its own at once.
            let own =
                Some(slots_of(*quota).saturating_sub(used)).filter(|own| *own > 0).unwrap_or(usize::MAX);
            let more = most.min(left).min(claim.cap.saturating_sub(used)).min(own);
            *count += more;
            left -= more;
        }
        granted
    }

    /// The slots that are each one's by weight, among those that want some. Whoever has more comes after the others: without this
    /// a partition of long tasks would in time hold every slot.
    #[allow(clippy::cast_precision_loss, reason = "numbers of slots")]
    fn quotas(&self, claims: &[Claim]) -> Vec<f64> {
        let weight = |claim: &Claim| self.shares.get(claim.partition).map_or(1.0, |share| share.weight);
        let all: f64 = claims.iter().map(weight).sum();
        claims.iter().map(|claim| (self.slots as f64 * weight(claim) / all).ceil()).collect()
    }

    #[allow(clippy::cast_precision_loss, reason = "numbers of slots")]
    fn choose(&self, claims: &[Claim], granted: &[usize], quotas: &[f64]) -> Option<usize> {
        let mut best: Option<(usize, bool, f64)> = None;
        for (position, ((claim, granted), quota)) in claims.iter().zip(granted).zip(quotas).enumerate() {
            let used = claim.used + granted;
            let Some(share) = self.shares.get(claim.partition).filter(|_| used < claim.cap) else { continue };
            if self.sharing == Sharing::Strict {
                return Some(position); // claims come in the order of the partitions
            }
            let over = used as f64 >= *quota;
            let served = share.served + *granted as f64 / share.weight;
            let better = best.is_none_or(|(_, o, s)| (over, served) < (o, s));
            if better {
                best = Some((position, over, served));
            }
        }
        best.map(|(position, ..)| position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(partition: usize, used: usize) -> Claim {
        Claim { partition, used, cap: usize::MAX }
    }

    fn serve(schedule: &mut Schedule, claims: &[Claim], turns: usize) -> Vec<usize> {
        let mut served = vec![0; claims.len()];
        for _ in 0..turns {
            let next = schedule.next(claims).unwrap();
            schedule.started(next);
            served[next] += 1;
        }
        served
    }

    #[test]
    fn turns_follow_the_weights() {
        let mut schedule = Schedule::new(Sharing::Fair, 8, [5, 3, 2].into_iter());
        let claims = [claim(0, 0), claim(1, 0), claim(2, 0)];
        assert_eq!(serve(&mut schedule, &claims, 1000), [500, 300, 200]);
    }

    #[test]
    fn a_deal_follows_the_weights() {
        let schedule = Schedule::new(Sharing::Fair, 16, [3, 1].into_iter());
        assert_eq!(schedule.deal(16, &[claim(0, 0), claim(1, 0)]), [12, 4]);
    }

    #[test]
    fn many_slots_are_dealt_by_weight_and_cap_as_few_are() {
        let schedule = Schedule::new(Sharing::Fair, 300_000, [3, 1, 2].into_iter());
        let capped = Claim { cap: 1_000, ..claim(2, 10) };
        let dealt = schedule.deal(300_000, &[claim(0, 0), claim(1, 0), capped]);
        assert_eq!((dealt.iter().sum::<usize>(), dealt[2]), (300_000, 990));
        assert!((150_000..=225_000).contains(&dealt[0]), "{dealt:?}");
        let strict = Schedule::new(Sharing::Strict, 300_000, [1, 1].into_iter());
        let first = Claim { cap: 200_000, ..claim(0, 0) };
        assert_eq!(strict.deal(300_000, &[first, claim(1, 0)]), [200_000, 100_000]);
    }

    #[test]
    fn no_number_of_slots_takes_long_to_deal() {
        let many = usize::MAX / 2;
        let schedule = Schedule::new(Sharing::Fair, many, [1, 3].into_iter());
        let dealt = schedule.deal(many, &[claim(0, 0), claim(1, 0)]);
        assert!(dealt[1] / 2 > dealt[0] && dealt[0] > many / 5, "{dealt:?}");
    }

    #[test]
    fn idleness_earns_no_credit() {
        let mut schedule = Schedule::new(Sharing::Fair, 8, [1, 1].into_iter());
        assert_eq!(serve(&mut schedule, &[claim(0, 0)], 100), [100]);
        schedule.woken(1);
        let served = serve(&mut schedule, &[claim(0, 0), claim(1, 0)], 10);
        assert!(served[0] >= 4, "{served:?}");
    }

    #[test]
    fn long_tasks_do_not_take_all_slots() {
        let schedule = Schedule::new(Sharing::Fair, 8, [1, 1].into_iter());
        // Partition 0 was served less, but has its half already.
        assert_eq!(schedule.deal(2, &[claim(0, 4), claim(1, 2)]), [0, 2]);
        assert_eq!(schedule.deal(2, &[claim(0, 6)]), [2], "what nobody else wants it may have");
    }

    #[test]
    fn caps_hold() {
        let schedule = Schedule::new(Sharing::Fair, 8, [1, 1].into_iter());
        let capped = Claim { cap: 3, ..claim(0, 1) };
        assert_eq!(schedule.deal(8, &[capped, claim(1, 0)]), [2, 6]);
        assert_eq!(schedule.deal(8, &[capped]), [2]);
    }

    #[test]
    fn strict_order_serves_the_first_alone() {
        let schedule = Schedule::new(Sharing::Strict, 8, [1, 100].into_iter());
        assert_eq!(schedule.deal(8, &[claim(0, 0), claim(1, 0)]), [8, 0]);
    }
}
