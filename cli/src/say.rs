//! Messages for people, on standard error.

use std::io::{self, Write as _};

use crate::escape::harmless;
use crate::secrets::hide;

/// Writes a message to standard error. If nobody reads it, that is fine.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "anyqueue: {}", harmless(&hide(text)));
}
