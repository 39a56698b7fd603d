//! What a site without a network gets from another site: a file with an image of a tenant and the in-memory environment.
//!
//! The other site is a server outside of the lab, which ends before the file is imported. The lab has no route to other networks.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use setup::environment::build_for_key;
use setup::run;

use crate::lab::{Lab, wait};
use crate::machines::Firmware;
use crate::provision::image;
use crate::server::Server;

/// The longest time until the other site's server is ready, on a busy host.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// An archive, and the public key that signed it and its image. The environment in it has the key.
#[derive(Debug)]
pub struct Archive {
    file: PathBuf,
    key: PathBuf,
    osie: PathBuf,
    image: String,
}

impl Archive {
    /// Has another site sign and export the image of Debian for machines with `firmware` in the folder `files`, as one of `tenant`, with an
    /// environment that installs signed images only.
    pub fn export(
        lab: &mut Lab,
        files: &Path,
        tenant: &str,
        firmware: Firmware,
    ) -> anyhow::Result<Self> {
        let (file, key, secret) =
            (lab.path("site.tar"), lab.path("site.pub"), lab.path("site.key"));
        let mut generate = Command::new("minisign");
        run(generate.args(["-G", "-W", "-p"]).arg(&key).arg("-s").arg(&secret))?;
        let osie = lab.path("osie-with-key");
        build_for_key(&osie, &key)?;
        let data = lab.path("former");
        let api = start(lab, &data)?;
        let tinwright = || {
            let mut command = Command::new(setup::program("tinwright"));
            command.env("TINWRIGHT_SERVER", format!("https://{api}")).env("TINWRIGHT_DATA", &data);
            command
        };
        run(tinwright().args(["tenant", "create", tenant]))?;
        let image = image(files, firmware)?;
        let name = image.name.trim_end_matches(".raw.zst").to_owned();
        let mut upload = tinwright();
        upload.args(["image", "upload", "--keep-data-source", "--tenant", tenant]);
        run(upload.args(["--name", &name]).arg(files.join(&image.name)))?;
        let mut sign = tinwright();
        run(sign.args(["image", "sign", &format!("{tenant}/{name}"), "--key"]).arg(&secret))?;
        let mut export = tinwright();
        export.args(["site", "export", "--image", &format!("{tenant}/{name}"), "--sign-key"]);
        run(export.arg(secret).arg("--osie").arg(&osie).arg(&file))?;
        lab.kill("former")?;
        std::fs::remove_dir_all(data)?;
        Ok(Self { file, key, osie, image: name })
    }

    /// Imports it to `server`. Returns the name of the image.
    pub fn import(&self, server: &Server) -> anyhow::Result<String> {
        let mut import = server.cli();
        import.args(["site", "import"]).arg(&self.file).arg("--key").arg(&self.key);
        run(import.arg("--osie").arg(&server.osie))?;
        for name in ["vmlinuz-x86_64", "initramfs-x86_64"] {
            let [own, imported] = [&self.osie, &server.osie].map(|it| std::fs::read(it.join(name)));
            anyhow::ensure!(own? == imported?, "{name} is not as it was exported");
        }
        Ok(self.image.clone())
    }
}

/// Starts a server outside of the lab with its data in `data`. Returns the address of its API.
fn start(lab: &mut Lab, data: &Path) -> anyhow::Result<String> {
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr();
    let (api, vitals) = (free()?.to_string(), free()?.to_string());
    let mut serve = Command::new(setup::program("tinwright"));
    serve.args(["serve", "--listen", &api, "--metrics-listen", &vitals]).arg("--data").arg(data);
    lab.start("former", serve.env("TINWRIGHT_GATEWAY_LISTEN", "127.0.0.1:0"))?;
    let ready = format!("http://{vitals}/readyz");
    wait("the other site", START_TIMEOUT, || {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--fail", "--output", "/dev/null", &ready]);
        curl.status().ok()?.success().then_some(())
    })
    .with_context(|| lab.log("former"))?;
    Ok(api)
}
