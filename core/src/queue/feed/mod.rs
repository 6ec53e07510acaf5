//! Where the deliveries of a stream come from: the window that its consumer sets, and turns to fill it.

mod pump;
mod refill;
mod source;
mod terms;
mod turns;
mod window;

pub(crate) use self::pump::run;
pub(crate) use self::source::{Batch, Feed, WindowSlot};
pub(crate) use self::terms::Terms;
