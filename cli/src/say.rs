//! What people are told beside the output.

use std::io::{self, Write as _};

use crate::escape::harmless;
use crate::secrets::hide;

/// Tells people something on standard error. If nobody reads that, nobody is told.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "anyqueue: {}", harmless(&hide(text)));
}
