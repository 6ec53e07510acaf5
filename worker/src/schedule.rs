//! Which partition gets the next free slot.

use crate::usage::SlotUsage;

/// Slots are dealt in at most about this many rounds, however many slots there are.
const ROUNDS: usize = 1024;

/// The number of whole slots in a quota.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
fn slots_of(quota: f64) -> usize {
    quota as usize
}

/// How partitions share the slots.
///
/// ```
/// use anyqueue_worker::{Partition, Sharing, TaskContext, Worker};
/// # let _runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # let _entered = _runtime.enter();
/// # let queue = anyqueue::Queue::new(anyqueue_memory::MemoryQueue::new())?;
/// let worker = Worker::builder(queue)
///     .partition(Partition::new("urgent")) // `bulk` is served only while this one is empty
///     .partition(Partition::new("bulk"))
///     .sharing(Sharing::Strict)
///     .handler("send_mail", |_to: String, _: TaskContext| async { Ok(()) })
///     .build()?;
/// # Ok::<(), anyqueue::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sharing {
    /// By weight: the next slot goes to the partition that was served least relative to its weight. No
    /// partition starves. What [other processes](crate::Worker::balance) use for a partition counts too, if
    /// the worker knows it.
    #[default]
    Fair,
    /// In the order in which the partitions were added: a partition is served only while those before it are
    /// empty.
    Strict,
}

/// What the schedule knows about one partition.
#[derive(Debug)]
struct Share {
    weight: f64,
    /// Slots that started tasks took, divided by the weight. The partition with the lowest value is next.
    served: f64,
    /// How many slots it has used on average recently.
    usage: SlotUsage,
}

/// A partition that could use a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotRequest {
    pub(crate) partition: usize,
    /// Slots that it has: those that run its tasks, those that its messages wait for, and those reserved for
    /// its pull.
    pub(crate) used: usize,
    /// Slots that it may have in total.
    pub(crate) cap: usize,
    /// Slots reserved for it that it does not use yet.
    pub(crate) own: usize,
}

#[derive(Debug)]
pub(crate) struct Schedule {
    sharing: Sharing,
    slots: usize,
    shares: Vec<Share>,
    /// The `served` value of the partition that was served last. A partition that was idle starts from here,
    /// without credit for that time.
    now: f64,
}

impl Schedule {
    pub(crate) fn new(sharing: Sharing, slots: usize, weights: impl Iterator<Item = u32>) -> Self {
        let share = |weight: u32| Share {
            weight: f64::from(weight.max(1)),
            served: 0.0,
            usage: SlotUsage::default(),
        };
        Self { sharing, slots, shares: weights.map(share).collect(), now: 0.0 }
    }

    pub(crate) fn set_slots(&mut self, slots: usize) {
        self.slots = slots;
    }

    /// How many slots each partition uses, here and in other processes; none for partitions beyond the end of
    /// the list.
    pub(crate) fn balance(&mut self, usage: &[SlotUsage]) {
        let usage = usage.iter().copied().chain(std::iter::repeat(SlotUsage::default()));
        for (share, usage) in self.shares.iter_mut().zip(usage) {
            share.usage = usage;
        }
    }

    /// Notes that a task of this partition starts, in this many slots.
    #[allow(clippy::cast_precision_loss, reason = "numbers of slots")]
    pub(crate) fn started(&mut self, partition: usize, slots: usize) {
        if let Some(share) = self.shares.get_mut(partition) {
            self.now = self.now.max(share.served);
            share.served += slots as f64 / share.weight;
        }
    }

    /// Notes that a partition that was idle may have tasks again.
    pub(crate) fn woken(&mut self, partition: usize) {
        if let Some(share) = self.shares.get_mut(partition) {
            share.served = share.served.max(self.now);
        }
    }

    /// Whose turn it is, where `shared` of the free slots are not reserved.
    pub(crate) fn next(&self, requests: &[SlotRequest], shared: usize) -> Option<usize> {
        let granted = vec![0; requests.len()];
        let quotas = self.quotas(requests);
        let position = self.choose(requests, &granted, &quotas, shared)?;
        requests.get(position).map(|request| request.partition)
    }

    /// Deals `room` slots to the partitions that could use them, of which `shared` are not reserved. Returns
    /// how many each gets.
    pub(crate) fn deal(&self, room: usize, mut shared: usize, requests: &[SlotRequest]) -> Vec<usize> {
        let mut granted = vec![0; requests.len()];
        if let ([request], [all]) = (requests, granted.as_mut_slice()) {
            *all = room.min(request.cap.saturating_sub(request.used)).min(request.own.saturating_add(shared));
            return granted;
        }
        let quotas = self.quotas(requests);
        let (mut left, most) = (room, room.div_ceil(ROUNDS));
        while left > 0 {
            let Some(position) = self.choose(requests, &granted, &quotas, shared) else { break };
            let (Some(request), Some(count), Some(quota)) =
                (requests.get(position), granted.get_mut(position), quotas.get(position))
            else {
                break;
            };
            let used = request.used.saturating_add(*count);
            // Several at once if there are many, but not past the partition's own share in one step.
            let own =
                Some(slots_of(*quota).saturating_sub(used)).filter(|own| *own > 0).unwrap_or(usize::MAX);
            // First the partition's own reserve, then slots that are not reserved.
            let (from, is_own) = match request.own.saturating_sub(*count) {
                0 => (shared, false),
                reserved => (reserved, true),
            };
            let more = most.min(left).min(request.cap.saturating_sub(used)).min(own).min(from);
            if !is_own {
                shared -= more;
            }
            *count += more;
            left -= more;
        }
        granted
    }

    /// Each partition's share of the slots by weight, among those that want some. A partition that has more
    /// than its share comes after the others. Otherwise a partition of long tasks would in time hold every
    /// slot.
    ///
    /// If other processes use slots for these partitions too, the shares are those of all slots together, and
    /// this process makes only its part of the change. If each process made the whole change, all of them
    /// together would change too much.
    #[allow(clippy::cast_precision_loss, reason = "numbers of slots")]
    fn quotas(&self, requests: &[SlotRequest]) -> Vec<f64> {
        let of = |request: &SlotRequest| {
            let share = self.shares.get(request.partition);
            share.map_or((1.0, SlotUsage::default()), |share| (share.weight, share.usage))
        };
        let weights: f64 = requests.iter().map(|request| of(request).0).sum();
        let elsewhere: f64 = requests.iter().map(|request| of(request).1.elsewhere).sum();
        let here = self.slots as f64;
        let quota = |request: &SlotRequest| {
            let (weight, usage) = of(request);
            let fair = (here + elsewhere) * weight / weights;
            if elsewhere <= 0.0 {
                return fair.ceil();
            }
            let missing = fair - usage.here - usage.elsewhere;
            // No partition starves, however much of it other processes do.
            (usage.here + missing * here / (here + elsewhere)).ceil().max(1.0)
        };
        requests.iter().map(quota).collect()
    }

    #[allow(clippy::cast_precision_loss, reason = "numbers of slots")]
    fn choose(
        &self,
        requests: &[SlotRequest],
        granted: &[usize],
        quotas: &[f64],
        shared: usize,
    ) -> Option<usize> {
        let mut best: Option<(usize, bool, f64)> = None;
        for (position, ((request, granted), quota)) in requests.iter().zip(granted).zip(quotas).enumerate() {
            let used = request.used + granted;
            let could = used < request.cap && (shared > 0 || *granted < request.own);
            let Some(share) = self.shares.get(request.partition).filter(|_| could) else {
                continue;
            };
            if self.sharing == Sharing::Strict {
                return Some(position); // requests come in the order of the partitions
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

    fn request(partition: usize, used: usize) -> SlotRequest {
        SlotRequest { partition, used, cap: usize::MAX, own: 0 }
    }

    fn serve(schedule: &mut Schedule, requests: &[SlotRequest], turns: usize) -> Vec<usize> {
        let mut served = vec![0; requests.len()];
        for _ in 0..turns {
            let next = schedule.next(requests, 1).unwrap();
            schedule.started(next, 1);
            served[next] += 1;
        }
        served
    }

    #[test]
    fn turns_follow_the_weights() {
        let mut schedule = Schedule::new(Sharing::Fair, 8, [5, 3, 2].into_iter());
        let requests = [request(0, 0), request(1, 0), request(2, 0)];
        assert_eq!(serve(&mut schedule, &requests, 1000), [500, 300, 200]);
    }

    #[test]
    fn a_deal_follows_the_weights() {
        let schedule = Schedule::new(Sharing::Fair, 16, [3, 1].into_iter());
        assert_eq!(schedule.deal(16, 16, &[request(0, 0), request(1, 0)]), [12, 4]);
    }

    #[test]
    fn many_slots_are_dealt_by_weight_and_cap_as_few_are() {
        let schedule = Schedule::new(Sharing::Fair, 300_000, [3, 1, 2].into_iter());
        let capped = SlotRequest { cap: 1_000, ..request(2, 10) };
        let dealt = schedule.deal(300_000, 300_000, &[request(0, 0), request(1, 0), capped]);
        assert_eq!((dealt.iter().sum::<usize>(), dealt[2]), (300_000, 990));
        assert!((150_000..=225_000).contains(&dealt[0]), "{dealt:?}");
        let strict = Schedule::new(Sharing::Strict, 300_000, [1, 1].into_iter());
        let first = SlotRequest { cap: 200_000, ..request(0, 0) };
        assert_eq!(strict.deal(300_000, 300_000, &[first, request(1, 0)]), [200_000, 100_000]);
    }

    #[test]
    fn no_number_of_slots_takes_long_to_deal() {
        let many = usize::MAX / 2;
        let schedule = Schedule::new(Sharing::Fair, many, [1, 3].into_iter());
        let dealt = schedule.deal(many, many, &[request(0, 0), request(1, 0)]);
        assert!(dealt[1] / 2 > dealt[0] && dealt[0] > many / 5, "{dealt:?}");
    }

    #[test]
    fn idleness_earns_no_credit() {
        let mut schedule = Schedule::new(Sharing::Fair, 8, [1, 1].into_iter());
        assert_eq!(serve(&mut schedule, &[request(0, 0)], 100), [100]);
        schedule.woken(1);
        let served = serve(&mut schedule, &[request(0, 0), request(1, 0)], 10);
        assert!(served[0] >= 4, "{served:?}");
    }

    #[test]
    fn long_tasks_do_not_take_all_slots() {
        let schedule = Schedule::new(Sharing::Fair, 8, [1, 1].into_iter());
        // Partition 0 was served less, but has its half already.
        assert_eq!(schedule.deal(2, 2, &[request(0, 4), request(1, 2)]), [0, 2]);
        assert_eq!(schedule.deal(2, 2, &[request(0, 6)]), [2], "what nobody else wants it may have");
    }

    /// The slots that each process gives to its two partitions after twenty rounds; `serves` says which
    /// partitions each process serves.
    fn settled(serves: &[[bool; 2]], slots: usize, weights: [u32; 2]) -> Vec<[f64; 2]> {
        let mut used: Vec<_> =
            serves.iter().map(|serves| serves.map(|does| f64::from(u8::from(does)))).collect();
        for _ in 0..20 {
            let before = used.clone();
            for (process, (used, serves)) in used.iter_mut().zip(serves).enumerate() {
                let elsewhere = |partition: usize| {
                    let others = before.iter().enumerate().filter(|(other, _)| *other != process);
                    others.map(|(_, used)| used[partition]).sum()
                };
                let mut schedule = Schedule::new(Sharing::Fair, slots, weights.into_iter());
                let usage = |partition| SlotUsage {
                    here: before[process][partition],
                    elsewhere: elsewhere(partition),
                };
                schedule.balance(&[usage(0), usage(1)]);
                let requests: Vec<_> =
                    (0..2).filter(|index| serves[*index]).map(|index| request(index, 0)).collect();
                let dealt = schedule.deal(slots, slots, &requests);
                for (request, dealt) in requests.iter().zip(dealt) {
                    used[request.partition] = f64::from(u32::try_from(dealt).unwrap());
                }
            }
        }
        used
    }

    #[test]
    fn what_other_processes_do_for_a_partition_counts_for_its_share() {
        assert_eq!(settled(&[[true, true], [true, false]], 8, [1, 1]), [[1.0, 7.0], [8.0, 0.0]]);
        assert_eq!(settled(&[[true, true], [true, true]], 8, [3, 1]), [[6.0, 2.0], [6.0, 2.0]]);
        let four = [[true, true], [true, true], [true, true], [false, true]];
        let [first, second] =
            settled(&four, 8, [1, 1]).iter().fold([0.0; 2], |sum, it| [sum[0] + it[0], sum[1] + it[1]]);
        assert!((first - second).abs() <= 3.0, "{first} {second}");
    }

    #[test]
    fn caps_hold() {
        let schedule = Schedule::new(Sharing::Fair, 8, [1, 1].into_iter());
        let capped = SlotRequest { cap: 3, ..request(0, 1) };
        assert_eq!(schedule.deal(8, 8, &[capped, request(1, 0)]), [2, 6]);
        assert_eq!(schedule.deal(8, 8, &[capped]), [2]);
    }

    #[test]
    fn what_is_reserved_goes_to_its_partition_alone() {
        let schedule = Schedule::new(Sharing::Fair, 8, [1, 1].into_iter());
        let with_own = |own| SlotRequest { own, ..request(1, 0) };
        assert_eq!(schedule.deal(8, 6, &[request(0, 0)]), [6]);
        assert_eq!(schedule.deal(8, 2, &[request(0, 0), with_own(6)]), [2, 6]);
        assert_eq!(schedule.deal(3, 0, &[request(0, 0), with_own(3)]), [0, 3]);
        assert_eq!(schedule.deal(2, 0, &[request(0, 0), with_own(3)]), [0, 2], "no more than there is");
        assert_eq!(schedule.next(&[request(0, 0), with_own(0)], 0), None);
        let strict = Schedule::new(Sharing::Strict, 8, [1, 1].into_iter());
        assert_eq!(strict.deal(8, 7, &[request(0, 0), with_own(1)]), [7, 1]);
    }

    #[test]
    fn strict_order_serves_the_first_alone() {
        let schedule = Schedule::new(Sharing::Strict, 8, [1, 100].into_iter());
        assert_eq!(schedule.deal(8, 8, &[request(0, 0), request(1, 0)]), [8, 0]);
    }
}
