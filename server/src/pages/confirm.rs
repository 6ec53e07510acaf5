//! What is asked before something is done.

use askama::Template;

use super::shell::Shell;

#[derive(Template)]
#[template(path = "confirm.html")]
pub(crate) struct Confirm {
    pub(crate) shell: Shell,
    /// What would be done.
    pub(crate) what: String,
    /// Where the form goes, and with which fields.
    pub(crate) action: String,
    pub(crate) fields: Vec<(&'static str, String)>,
    /// What the button says.
    pub(crate) verb: &'static str,
    /// Whether it cannot be undone.
    pub(crate) danger: bool,
    /// Whether there is nothing to do.
    pub(crate) none: bool,
    /// Where to go instead.
    pub(crate) back: String,
}
