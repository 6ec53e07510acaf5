//! The commands, a file for each.

pub(crate) mod bench;
#[cfg(feature = "conformance")]
pub(crate) mod conformance;
pub(crate) mod dead;
pub(crate) mod doctor;
pub(crate) mod pages;
pub(crate) mod pause;
pub(crate) mod peek;
pub(crate) mod pull;
pub(crate) mod purge;
pub(crate) mod push;
pub(crate) mod stats;
pub(crate) mod transfer;
pub(crate) mod work;
