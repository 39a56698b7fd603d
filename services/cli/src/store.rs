//! Backups of a running server, and the end of what waits after a restore.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use runtime::Channel;
use tinwright::store::v1::{BackupRequest, ResumeImageCollectionRequest};

use crate::connect::{Io, stream};

/// Writes a backup of the server's store to `file`, or to standard output for `-`. The file is replaced once the backup is complete, and only
/// its owner may read it. An error leaves no incomplete file.
pub async fn backup(channel: &Channel, file: &Path) -> anyhow::Result<()> {
    if file == Path::new("-") {
        let mut out = io::stdout();
        receive(channel, &mut out).await?;
        return out.flush().context("writing to standard output");
    }
    let replaced = if file.exists() { ", in place of the earlier file" } else { "" };
    let mut partial = file.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Path::new(&partial);
    let written = write(channel, partial, file).await;
    if written.is_err() {
        // The first error counts: a file that cannot be removed does no harm.
        drop(fs::remove_file(partial));
    }
    let bytes = written?;
    // A reader that is gone does not need it.
    let _ = writeln!(io::stdout(), "{}: {bytes} bytes{replaced}", file.display());
    Ok(())
}

/// Writes a backup to `partial`, which becomes `file`. Returns its length in bytes.
async fn write(channel: &Channel, partial: &Path, file: &Path) -> anyhow::Result<u64> {
    let writing = || format!("writing {}", partial.display());
    let mut out = File::options();
    let out = out.write(true).create(true).truncate(true).mode(0o600).open(partial);
    let mut out = out.with_context(writing)?;
    receive(channel, &mut out).await?;
    out.sync_all().with_context(writing)?;
    fs::rename(partial, file).with_context(|| format!("writing {}", file.display()))?;
    Ok(fs::metadata(file).with_context(writing)?.len())
}

/// Lets content of images be collected again after a restore.
pub async fn resume(io: &mut Io<'_>) -> anyhow::Result<()> {
    let response = io.call(ResumeImageCollectionRequest {}).await?;
    io.print(&match response.restore_time {
        Some(time) => {
            format!("content of images is collected again; it was not since the restore of {time}")
        }
        None => "nothing to resume: content of images is collected".into(),
    })
}

async fn receive(channel: &Channel, out: &mut impl Write) -> anyhow::Result<()> {
    let mut parts = stream(channel, BackupRequest {}).await?;
    while let Some(part) = parts.message().await? {
        out.write_all(&part.data).context("writing the backup")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failed_backup_leaves_no_incomplete_file_and_the_earlier_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.bak");
        fs::write(&file, "earlier").unwrap();
        let nobody = Channel::unconnected();
        assert!(backup(&nobody, &file).await.is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(&file).unwrap(), "earlier");
    }
}
