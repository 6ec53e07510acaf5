//! Deliveries in the hands of workers elsewhere.

use anyqueue::DetachedDelivery;

/// A delivery in the hands of a worker elsewhere: either all that is needed to settle it, or the name under
/// which this instance keeps it.
pub(crate) enum Held {
    Detached(Box<DetachedDelivery>),
    Pinned(u128),
}
