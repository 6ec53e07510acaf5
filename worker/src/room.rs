//! How much room a machine has for more work.

/// How much room there is for a worker's tasks, as a [`Governor`](crate::Governor) sees it: from none of its
/// slots to all of them.
///
/// ```
/// use anyqueue_worker::Room;
/// let half = Room::of(0.5, "it is daytime");
/// assert_eq!((half.share(), half.reason()), (0.5, Some("it is daytime")));
/// assert_eq!((Room::all().share(), Room::none("maintenance").share()), (1.0, 0.0));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Room {
    share: f64,
    reason: Option<String>,
}

impl Room {
    /// Room for all slots.
    pub const fn all() -> Self {
        Self { share: 1.0, reason: None }
    }

    /// Room for no slot, and why.
    pub fn none(reason: impl Into<String>) -> Self {
        Self::of(0.0, reason)
    }

    /// Room for this share of the slots, from 0 to 1, rounded up to whole slots, and why not for all. A share
    /// above 1 counts as 1; a negative share or NaN counts as 0. The reason is for people: it is logged, and
    /// [`Worker::health`](crate::Worker::health) returns it.
    pub fn of(share: f64, reason: impl Into<String>) -> Self {
        let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
        Self { share, reason: (share < 1.0).then(|| reason.into()) }
    }

    /// The share of the slots, from 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Why there is not room for all slots; `None` if there is.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// The smaller of the two.
    pub(crate) fn min(self, other: Self) -> Self {
        if other.share < self.share { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_never_out_of_range() {
        let shares = [(-1.0, 0.0), (f64::NAN, 0.0), (f64::INFINITY, 1.0), (1.0, 1.0), (1e-9, 1e-9)];
        for (given, counted) in shares {
            assert_eq!(Room::of(given, "because").share().to_bits(), f64::to_bits(counted), "{given}");
        }
        assert_eq!(Room::of(7.0, "because"), Room::all());
    }
}
