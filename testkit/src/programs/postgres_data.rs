//! The data that a new `PostgreSQL` begins with.

use std::path::PathBuf;

use tokio::sync::OnceCell;

use crate::error::{Doing, Result};
use crate::place::Place;
use crate::program::run_helper;
use crate::reaper::Reaper;

/// What `initdb` is told, always the same.
const FLAGS: &[&str] = &["-U", "postgres", "--no-sync", "-A", "trust", "-E", "UTF8", "--locale=C"];

/// `initdb` computes for a second or more, and a copy of what it makes takes a tenth of that. So it runs once
/// in each process, where all servers are of one version: the newest that is installed. Processes do not share
/// it: nobody would know when the last of them has ended.
///
/// If making it fails, whoever comes next tries again.
static MODEL: OnceCell<Model> = OnceCell::const_new();

/// A data folder that no server uses. It is removed when this process ends, in whatever way.
#[derive(Debug)]
struct Model {
    data: PathBuf,
    _reaper: Reaper,
}

/// Makes the data folder of a new server in this place.
pub(super) async fn make(place: &Place, initdb: PathBuf) -> Result<()> {
    let model = MODEL.get_or_try_init(|| Model::make(place, initdb)).await?;
    // The copy belongs to the server's account, since that makes it, and is closed to others as the model is.
    let mut command = place.command("cp");
    command.arg("-a").arg(&model.data).arg(place.dir());
    run_helper(command).await.map(drop)
}

impl Model {
    /// Makes it under the account of this place, which alone can read it later.
    async fn make(place: &Place, initdb: PathBuf) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("anyqueue-").tempdir();
        let folder = folder.doing(|| "make a temporary folder".to_owned())?;
        let reaper = Reaper::start(folder.path(), "")?;
        let place = place.beside(folder.keep())?;
        let data = place.dir().join("data");
        let mut command = place.command(initdb);
        command.arg("-D").arg(&data).args(FLAGS);
        run_helper(command).await?;
        Ok(Self { data, _reaper: reaper })
    }
}
