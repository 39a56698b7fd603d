//! The client that sends what the original's generated one sends: it runs a container of every scheme, through the gateway and on the node.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rack::SERVER;
use rack::lab::wait;
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::machine::NodeSite;
use crate::schemes::{self, Scheme};
use crate::servers::SQUASH;

/// The client, and the module that it uses.
const CLIENT: &str = "tests/rack/imageapi_client.py";
const LIBRARY: &str = "services/node-agent/tests/client.py";
/// Maximum time until a system has written its report.
const SYSTEM_TIMEOUT: Duration = Duration::from_secs(180);
/// Maximum time of a client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The folder with programs for the node, in the export of squashfs files, and where the node mounts the export.
const PROGRAMS: &str = "python";
const MOUNTED: &str = "/programs";
/// The parts of Debian's root file system that Python needs.
const PYTHON: [&str; 4] =
    ["./usr/bin/python3.11", "./usr/lib/python3.11", "./usr/lib/x86_64-linux-gnu", "./lib"];

impl NodeSite {
    /// Returns the schemes of the contract, with the addresses of the servers.
    fn schemes(&self) -> Vec<Scheme> {
        let secret = self.servers.as_ref().unwrap().ceph().secret();
        vec![
            schemes::writable_nfs(),
            schemes::overlay_on_nfs(),
            schemes::loopback_squashfs(),
            schemes::writable_iscsi(),
            schemes::overlay_on_iscsi(),
            schemes::deep_chain(),
            schemes::writable_rbd(&secret),
            schemes::overlay_on_rbd(&secret),
        ]
    }

    /// Writes the containers that the client runs, with their reports, to the file `path`.
    fn write_schemes(&self, path: &Path) {
        let schemes = self.schemes();
        let schemes = schemes.iter().map(|it| json!({"body": it.body, "report": it.start}));
        let schemes: Vec<Value> = schemes.collect();
        std::fs::write(path, serde_json::to_string(&schemes).unwrap()).unwrap();
    }

    /// Runs the client as a program in the lab, which reaches the node through the gateway.
    pub(crate) fn run_client_at_gateway(&mut self) {
        block_in_place(|| {
            let before = self.shell().tables().unwrap();
            let schemes = self.site.lab.path("schemes.json");
            self.write_schemes(&schemes);
            let secrets = self.site.server.data.join("secrets");
            let mut client = self.site.lab.command("python3");
            client.arg(setup::root().join(CLIENT)).arg(&schemes);
            client.arg("https://127.0.0.1:8080");
            client.arg("--library").arg(setup::root().join(LIBRARY).parent().unwrap());
            client.arg("--base").arg(format!("/nodes/{}/imageapi/v1", self.machine.name));
            client.arg("--ca").arg(secrets.join("ca.pem"));
            client.arg("--certificate").arg(secrets.join("admin.pem"));
            client.arg("--key").arg(secrets.join("admin-key.pem"));
            self.answer(&mut client);
            self.check_nothing_is_left(&before);
        });
    }

    /// Runs the client to its end. When it has started a container, it waits until its system has written its report.
    fn answer(&mut self, client: &mut Command) {
        let mut running = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = running.stdin.take().unwrap();
        for line in BufReader::new(running.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            println!("{line}");
            let Some(started) = line.strip_prefix("started ") else { continue };
            let (mountpoint, report) = started.split_once(' ').unwrap();
            let report: String = serde_json::from_str(report).unwrap();
            let command = format!("cat {mountpoint}/report 2>/dev/null || true");
            let shell = self.shell();
            let has_started = || (shell.run(&command).unwrap() == report).then_some(());
            wait(&line, SYSTEM_TIMEOUT, has_started).unwrap();
            input.write_all(b"\n").unwrap();
        }
        let status = running.wait().unwrap();
        assert!(status.success(), "the client: {status}");
    }

    /// Runs the client on the node itself, at the agent's Unix socket. Python is on the NFS server.
    pub(crate) fn run_client_on_node(&mut self) {
        block_in_place(|| {
            let before = self.shell().tables().unwrap();
            self.write_programs();
            let shell = self.shell();
            let options = format!("vers=4.2,addr={SERVER},proto=tcp,sec=sys,ro");
            let mount = format!("mount -i -t nfs4 -o {options} {SERVER}:/{SQUASH} {MOUNTED}");
            shell.run(&format!("mkdir -p {MOUNTED} && {mount}")).unwrap();
            let root = format!("{MOUNTED}/{PROGRAMS}");
            let libraries = format!("{root}/usr/lib/x86_64-linux-gnu");
            let python = format!(
                "PYTHONHOME={root}/usr PYTHONDONTWRITEBYTECODE=1 {libraries}/ld-linux-x86-64.so.2 --library-path {libraries} {root}/usr/bin/python3.11"
            );
            let arguments = format!("{root}/schemes.json unix:/run/imageapi.sock --library {root}");
            let client = format!("{python} {root}/imageapi_client.py {arguments}");
            let line = format!(
                "rm -f /tmp/status; ({client}; echo $? >/tmp/status) >/tmp/client 2>&1 </dev/null & true"
            );
            shell.run(&line).unwrap();
            let status = wait("the client on the node", CLIENT_TIMEOUT, || {
                let status = shell.run("cat /tmp/status 2>/dev/null || true").unwrap();
                (!status.is_empty()).then_some(status)
            });
            let output = shell.run("cat /tmp/client").unwrap();
            println!("{output}");
            assert_eq!(status.unwrap(), "0\n", "{output}");
            shell.run(&format!("umount {MOUNTED} && rm -r {MOUNTED}")).unwrap();
            self.check_nothing_is_left(&before);
        });
    }

    /// Writes Python, the client and the schemes to the NFS server.
    fn write_programs(&self) {
        let folder = self.site.lab.path("images").join(SQUASH).join(PROGRAMS);
        std::fs::create_dir(&folder).unwrap();
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(&folder).arg("-xf");
        tar.arg(rack::provision::images().unwrap().join("debian-root.tar"));
        tar.args(["--exclude=*/perl*", "--exclude=*/gconv", "--exclude=*/systemd"]).args(PYTHON);
        setup::run(&mut tar).unwrap();
        for file in [CLIENT, LIBRARY] {
            let file = setup::root().join(file);
            std::fs::copy(&file, folder.join(file.file_name().unwrap())).unwrap();
        }
        self.write_schemes(&folder.join("schemes.json"));
    }

    /// Waits until the kernel's tables are as `before`.
    fn check_nothing_is_left(&mut self, before: &rack::shell::Tables) {
        // The container of the stack starts programs.
        let of = |tables: rack::shell::Tables| rack::shell::Tables {
            processes: String::new(),
            ..tables
        };
        let before = of(before.clone());
        let mut after = before.clone();
        let _unchanged = wait("the end of mounts and attachments", SYSTEM_TIMEOUT, || {
            after = of(self.shell().tables().unwrap());
            (after == before).then_some(())
        });
        assert_eq!(after, before);
    }
}
