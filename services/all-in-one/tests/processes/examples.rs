//! The files in `docs/examples`, as an operator uses them: the server starts with its file, and takes every other one.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::network::Network;
use super::process::{Place, Process, arguments};

/// Commands whose files are in the folder, in an order in which what they name exists.
const COMMANDS: [&str; 11] = [
    "hardware create -f node-1.yaml",
    "hardware create -f hardware.yaml",
    "hardware create -f network.yaml",
    "location create -f locations.yaml",
    "model create -f models.yaml",
    "template create -f debian.yaml",
    "template create -f ubuntu.yaml",
    "template create -f archive.yaml",
    "template create -f wipe.yaml",
    "template create -f cexec.yaml",
    "stack apply -f stack.yaml --no-wait",
];

/// Commands that use the created templates. Each prints a line with the text behind the arrow.
const USES: [&str; 4] = [
    "workflow create --template wipe --hardware node-vlan => wipe",
    "workflow create --template ubuntu --hardware node-vlan --value image=http://a/b => ubuntu",
    "workflow create --template cexec --hardware node-pool --value root_password=x => cexec",
    "instance create --hardware node-3 --template debian --userdata user-data --hostname db-1 => db-1",
];

/// Files of instances, each with a machine of its own in place of node-1.
const INSTANCES: [(&str, &str); 3] = [
    ("instance.yaml", "node-1"),
    ("archive-instance.yaml", "node-bond"),
    ("stack-instance.yaml", "node-2"),
];

/// Adds a BMC without calling it; its password is read from standard input.
const BMC: &str = "power bmc create --username admin --skip-login --password-file -";

fn folder() -> PathBuf {
    setup::root().join("docs/examples")
}

/// Runs `tinwright` in the folder with `words`, and with `input`. Returns its output.
fn run(server: &Process, words: &str, input: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tinwright"));
    command.args(words.split(' ')).current_dir(folder());
    command.args(["--server", &format!("https://{}", server.place.grpc)]);
    command.arg("--secrets").arg(server.place.secrets());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tinwright {words}: {complaint}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_server_starts_with_the_example_file_and_takes_the_other_examples() {
    let settings = std::fs::read_to_string(folder().join("tinwright.toml")).unwrap();
    let network = Network::new(&[]);
    network.on_site(async || {
        let place = Place::new();
        let (file, images) = (place.path("tinwright.toml"), place.path("images"));
        std::fs::create_dir(&images).unwrap();
        std::fs::write(&file, settings.replace("\"eth1\"", "\"br0\"")).unwrap();
        let [file, images] = [file, images].map(|path| path.display().to_string());
        let server = place.start(&arguments(&["--config", &file, "--files", &images])).await;
        for command in COMMANDS {
            run(&server, command, "");
        }
        for (n, machine) in ["node-1", "node-2", "node-3", "node-bond"].into_iter().enumerate() {
            let words = format!("{BMC} --hardware {machine} --url https://198.51.100.20{n}");
            run(&server, &words, "secret");
        }
        for (file, machine) in INSTANCES {
            let instance = std::fs::read_to_string(folder().join(file)).unwrap();
            let named = format!("hardware_id: {machine}");
            let instance = instance.replace("hardware_id: node-1", &named);
            assert!(run(&server, "instance create -f -", &instance).contains("queued"), "{file}");
        }
        for command in USES {
            let (command, shown) = command.split_once(" => ").unwrap();
            assert!(run(&server, command, "").contains(shown), "{command}");
        }
    });
}

#[test]
fn each_file_of_the_folder_is_used_by_a_test() {
    let commands = COMMANDS.iter().chain(&USES).flat_map(|command| command.split(' '));
    let instances = INSTANCES.iter().map(|(file, _)| *file);
    // By the first test; the others by the last one, and by those of the documents.
    let others = ["README.md", "bmcs.csv", "tinwright.service", "tinwright.toml"];
    let used: Vec<_> = commands.chain(instances).chain(others).collect();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(used.contains(&name.as_str()), "no test uses docs/examples/{name}");
    }
}

#[test]
fn the_examples_that_are_not_created_are_as_their_readers_expect() {
    let text = |name: &str| std::fs::read_to_string(folder().join(name)).unwrap();
    assert!(text("user-data").starts_with("#cloud-config\n"));
    // The columns of `hardware enrol --csv` (docs/reference/enrolment-bmc.md).
    let rows: Vec<_> = text("bmcs.csv").lines().map(|row| row.split(',').count()).collect();
    assert!(text("bmcs.csv").starts_with("bmc,username,password,name,label:rack\n"));
    assert_eq!(rows, [5, 5, 5]);
    let unit = text("tinwright.service");
    for line in ["RestartPreventExitStatus=78", "Restart=on-failure", "StateDirectory=tinwright"] {
        assert!(unit.lines().any(|found| found == line), "{line}");
    }
}
