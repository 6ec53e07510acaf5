//! The question that is asked before something is done.

use askama::Template;

use super::shell::Shell;

#[derive(Template)]
#[template(path = "confirm.html")]
pub(crate) struct Confirm {
    pub(crate) shell: Shell,
    /// What would be done.
    pub(crate) what: String,
    /// The address that the form is sent to, and its fields.
    pub(crate) action: String,
    pub(crate) fields: Vec<(&'static str, String)>,
    /// The text of the button.
    pub(crate) verb: &'static str,
    /// Whether the action cannot be undone.
    pub(crate) danger: bool,
    /// Whether there is nothing to do.
    pub(crate) none: bool,
    /// Where to go instead.
    pub(crate) back: String,
}
