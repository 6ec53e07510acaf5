//! Endpoints of other systems, for programs that already speak their protocols. Each does the same as
//! endpoints of this service, in other words.

pub(crate) mod job_tasks;
mod job_wire;
mod job_worker;
pub(crate) mod jobs;
mod nothing;
mod notification;
pub(crate) mod notifications;
mod oldest;
mod tenant;
