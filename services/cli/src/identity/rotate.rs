//! Replacing the site's keys.

use tinwright::identity::v1 as pb;

use crate::connect::Io;

/// Commands that replace the site's keys.
#[derive(Debug, clap::Subcommand)]
pub enum RotateCommand {
    /// Replace the certificate authority, which issues all certificates of the site
    Ca(Step),
    /// Replace the site key, with which stored secrets are encrypted and tokens are made
    SiteKey(Step),
}

/// A step of replacing a key.
#[derive(Debug, clap::Args)]
pub struct Step {
    /// Only make the next key, to copy it to the other processes of the site before it is used
    #[arg(long, conflicts_with_all = ["finish", "force"])]
    prepare: bool,
    /// Drop the former key: what was made with it is refused
    #[arg(long)]
    finish: bool,
    /// Drop it a minute after it was replaced at the earliest, although something made with it, or
    /// the key of an edge, may be in use
    #[arg(long, requires = "finish")]
    force: bool,
}

impl Step {
    fn step(&self) -> pb::RotationStep {
        match (self.prepare, self.finish) {
            (true, _) => pb::RotationStep::Prepare,
            (_, true) => pb::RotationStep::Finish,
            (false, false) => pb::RotationStep::Replace,
        }
    }
}

/// Runs `command`.
pub(super) async fn run(command: RotateCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    let text = match command {
        RotateCommand::Ca(options) => rotate_authority(&options, io).await?,
        RotateCommand::SiteKey(options) => rotate_site_key(&options, io).await?,
    };
    io.print(&text)
}

/// Carries out a step with the authority, and returns what comes next.
async fn rotate_authority(options: &Step, io: &Io<'_>) -> anyhow::Result<String> {
    let step = options.step();
    let request = pb::RotateAuthorityRequest { step: step.into(), force: options.force };
    let response = io.call(request).await?;
    Ok(match step {
        pb::RotationStep::Prepare => {
            "next authority made; copy ca.pem and ca-cross.pem to the secrets of the other processes, then run this without --prepare".into()
        }
        pb::RotationStep::Finish => finished(&response.refused_certificates),
        pb::RotationStep::Replace | pb::RotationStep::Unspecified => {
            "authority replaced; copy the new files to the secrets of the other processes and of clients, issue client certificates again, and run this with --finish after a day".into()
        }
    })
}

/// Returns the text for a finished replacement, after which the certificates in `refused` are refused.
fn finished(refused: &[String]) -> String {
    let mut text = "former authority dropped; copy ca.pem to everybody who uses it".to_owned();
    if !refused.is_empty() {
        text += "\nClient certificates of the former authority are refused: issue them again with `tinwright identity issue`";
    }
    for certificate in refused {
        text += &format!("\n  {certificate}");
    }
    text
}

/// Carries out a step with the site key, and returns what comes next.
async fn rotate_site_key(options: &Step, io: &Io<'_>) -> anyhow::Result<String> {
    let step = options.step();
    let request = pb::RotateSiteKeyRequest { step: step.into(), force: options.force };
    let records = io.call(request).await?.resealed_records;
    Ok(match step {
        pb::RotationStep::Prepare => {
            "next site key made; copy site.key.next to the secrets of the other processes, then run this without --prepare".into()
        }
        pb::RotationStep::Finish => {
            format!("former site key dropped; {records} records encrypted with the new one")
        }
        pb::RotationStep::Replace | pb::RotationStep::Unspecified => format!(
            "site key replaced; {records} records encrypted with the new one; copy site.key.old and site.key to the secrets of the other processes, and run this with --finish after six hours"
        ),
    })
}
