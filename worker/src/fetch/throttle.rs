//! From what the governor sees to the slots that are used: down at once, up step by step.

use std::time::{Duration, Instant};

use crate::room::Room;

/// How long there must be more room before the share of the slots grows.
const CALM: Duration = Duration::from_secs(5);
/// How much of the slots the share grows by at a time.
const STEP: f64 = 0.125;

/// The share of the slots that the governor leaves. It follows a decrease at once, since the machine is short
/// of something. It grows in steps, and only after there was more room for a while: the tasks of each step
/// must show in what the governor measures before the next step.
#[derive(Debug)]
pub(super) struct Throttle {
    share: f64,
    reason: Option<String>,
    /// When there was last no more room than the current share.
    short_at: Option<Instant>,
}

impl Throttle {
    pub(super) fn new() -> Self {
        Self { share: 1.0, reason: None, short_at: None }
    }

    /// Follows what the governor sees now.
    pub(super) fn follow(&mut self, room: &Room, now: Instant) {
        if room.share() <= self.share {
            (self.share, self.short_at) = (room.share(), Some(now));
        } else if self.short_at.is_none_or(|at| now.saturating_duration_since(at) >= CALM) {
            self.share = room.share().min(self.share + STEP);
        }
        if let Some(reason) = room.reason() {
            self.reason = Some(reason.to_owned());
        }
        if self.share >= 1.0 {
            self.reason = None;
        }
    }

    /// The share of the slots, from 0 to 1.
    pub(super) fn share(&self) -> f64 {
        self.share
    }

    /// Why the share is not all of the slots.
    pub(super) fn reason(&self) -> Option<&String> {
        self.reason.as_ref()
    }

    /// How many of `all` slots are used, rounded up.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "numbers of slots, and not negative"
    )]
    pub(super) fn slots(&self, all: usize) -> usize {
        if self.share >= 1.0 { usize::MAX } else { (all as f64 * self.share).ceil() as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slots of sixteen after each second, in which the governor leaves these shares.
    fn followed(shares: &[f64]) -> Vec<usize> {
        let (mut throttle, mut now) = (Throttle::new(), Instant::now());
        let follow = |share: &f64| {
            throttle.follow(&Room::of(*share, "as the test wants"), now);
            now += Duration::from_secs(1);
            throttle.slots(16).min(16)
        };
        shares.iter().map(follow).collect()
    }

    #[test]
    fn slots_go_down_at_once_and_up_step_by_step() {
        let shares = [1.0, 0.5, 0.1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
        assert_eq!(followed(&shares), [16, 8, 2, 2, 2, 2, 2, 4, 6, 8, 10, 12, 14, 16, 16]);
    }

    #[test]
    fn what_flaps_is_followed_down_only() {
        let shares: Vec<f64> = (0..60).map(|second| if second % 4 == 0 { 0.25 } else { 1.0 }).collect();
        let slots = followed(&shares);
        let changes = slots.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes <= 60 / 4, "{slots:?}");
        let noise: Vec<f64> = (0..60).map(|second| if second % 2 == 0 { 0.5 } else { 0.52 }).collect();
        assert!(followed(&noise).iter().all(|slots| (8..=9).contains(slots)));
    }

    #[test]
    fn the_least_room_is_one_slot_and_none_is_none() {
        assert_eq!(followed(&[0.0001, 0.0]), [1, 0]);
    }
}
