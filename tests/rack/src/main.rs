//! Two bare machines become two systems that know who they are, before a newcomer's eyes.

mod story;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use rack::machines::{Firmware, Machine};
use rack::provision::images;
use rack::server::osie;
use rack::site::Site;
use tinwright::instance::v1::{Instance, State};
use tokio::task::JoinSet;

use crate::story::Story;

/// How long one machine may take to be active.
const PATIENCE: Duration = Duration::from_secs(20 * 60);

#[derive(Debug, clap::Parser)]
#[command(version)]
struct Arguments {
    /// Take the rack down once both machines are active
    #[arg(long)]
    down: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match up(Arguments::parse().down).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo rack: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Boots and provisions the rack; then leaves it up until the newcomer presses Enter, unless it is to go `down`.
async fn up(down: bool) -> anyhow::Result<()> {
    let story = Story::begin();
    story.say("making the operating system installation environment and the images");
    let (osie, images) = (osie()?, images()?);
    story.say("starting libvirt, the BMCs and the server");
    let site = Site::start(&osie, &images).await?;
    story.say(format!("tinwright serves on https://{}", site.server.api));
    let machines =
        [Machine::new(&site.lab, 1, Firmware::Bios)?, Machine::new(&site.lab, 2, Firmware::Uefi)?];
    provision(&story, &site, &machines).await?;
    story.say("both machines are active");
    if !down {
        eprintln!(
            "\nLook around from another terminal:\n  export TINWRIGHT_SERVER=https://{} TINWRIGHT_DATA={}\n  {} hardware list\n\nEnter takes the rack down.",
            site.server.api,
            site.server.data.display(),
            setup::program("tinwright").display(),
        );
        std::io::stdin().read_line(&mut String::new())?;
    }
    Ok(())
}

/// Both at once, until they are active.
async fn provision(story: &Story, site: &Site, machines: &[Machine]) -> anyhow::Result<()> {
    let template = site.operator.template().await.context("the template")?;
    let mut waiting = JoinSet::new();
    for machine in machines {
        let id = site.rack(machine).await?;
        let instance = site.install(&id, machine, &template).await?;
        let (operator, name) = (site.operator.clone(), machine.name.clone());
        let chapter = story.of(&name);
        let told = chapter.clone();
        waiting.spawn(async move {
            let mut last = (String::new(), String::new());
            let tell = |instance: &Instance| {
                let news = (instance.state().word(), instance.state_reason.clone());
                if news != last {
                    told.say(&news.0, &news.1);
                    last = news;
                }
            };
            let done = operator.until(&instance.id, State::Active, PATIENCE, tell).await;
            done.with_context(|| name.clone())
        });
        let operator = site.operator.clone();
        waiting.spawn(async move { operator.work_of(&id, |work| chapter.show(work)).await });
    }
    while let Some(done) = waiting.join_next().await {
        done??;
    }
    Ok(())
}
