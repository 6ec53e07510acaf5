//! Child processes: the suite's own binary, started again in a role, so that a case can kill it.
//!
//! The child reports on its standard output, one flushed line at a time, what it is about to do and what was
//! confirmed; the parent writes that into the case's history. A child ends when its standard input does, so
//! none outlives its parent.

mod event;
mod parent;
mod play;
mod roles;

pub use event::{ChildEvent, Role};
pub use parent::Child;
pub use play::run_if_child;
