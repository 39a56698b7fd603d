//! The commands in the documents, as their readers type them.
//!
//! Each block of commands is run by a scenario (`docs/*.sh`), which names it by its page and heading, or is listed in [`ELSEWHERE`]. A test that
//! is named there reads the commands out of the page, by [`setup::pages::typed`]: this is checked here, without running it.
//! A scenario runs with `bash` in namespaces of its own: below `/etc`, `/root`, `/srv` and `/var` it writes into memory, and its
//! network has the addresses of the documents.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use setup::pages::{Block, Page, pages, typed};

use super::emulator::{Emulator, PASSWORD, USER};
use super::network::Network;

/// The blocks below a heading that no scenario runs.
struct Elsewhere {
    /// The page and the heading.
    place: [&'static str; 2],
    /// The number of commands of each block: one that is added has to be listed, too.
    commands: &'static [usize],
    tested: Tested,
}

/// The test of blocks that no scenario runs.
enum Tested {
    /// By the function of this name in this file, which reads the commands out of the page.
    By { file: &'static str, function: &'static str },
    /// With the block of this page and heading, whose commands contain these. A test reads that one.
    With { place: [&'static str; 2] },
    /// Not at all, because they cannot be run here.
    Not { reason: &'static str },
}

const fn by(
    place: [&'static str; 2],
    commands: &'static [usize],
    [file, function]: [&'static str; 2],
) -> Elsewhere {
    Elsewhere { place, commands, tested: Tested::By { file, function } }
}

const fn with(
    place: [&'static str; 2],
    commands: &'static [usize],
    other: [&'static str; 2],
) -> Elsewhere {
    Elsewhere { place, commands, tested: Tested::With { place: other } }
}

const fn not(
    place: [&'static str; 2],
    commands: &'static [usize],
    reason: &'static str,
) -> Elsewhere {
    Elsewhere { place, commands, tested: Tested::Not { reason } }
}

const FIRST_SCREEN: [&str; 2] = [
    "tests/rack/tests/first_screen.rs",
    "the_first_screen_leads_from_the_tarball_to_a_shell_on_the_installed_machine",
];
const IAL: [&str; 2] =
    ["tests/api/ial/manual.rs", "the_commands_of_the_manual_are_answered_without_error"];
const LAB: [&str; 2] = ["tests/setup/src/lab.rs", "use_machine"];
const NODE_CALLS: [&str; 2] = ["tests/api/nodes/real_agent.rs", "type_documented_calls"];
const NODE_ENVIRONMENT: [&str; 2] = ["tests/rack/tests/node/machine.rs", "build_environments"];
/// The lines that [`FIRST_SCREEN`] types.
const README: [&str; 2] = ["README.md", "Tinwright"];

/// The blocks that no scenario runs.
const ELSEWHERE: &[Elsewhere] = &[
    by(README, &[8], FIRST_SCREEN),
    not(["README.md", "Without hardware"], &[2], "they start the tests themselves"),
    by(["docs/gateway.md", "The ImageAPI"], &[2], NODE_CALLS),
    by(["docs/ial.md", "Calls"], &[1; 10], IAL),
    by(["docs/imageapi.md", "With the control plane"], &[2], NODE_ENVIRONMENT),
    by(["docs/imageapi.md", "Calls"], &[1], NODE_CALLS),
    with(["docs/images.md", "Installing a machine"], &[1], README),
    not(
        ["docs/images.md", "Signatures"],
        &[4],
        "minisign asks for passwords; the tests of the command line sign and verify",
    ),
    by(["docs/lab.md", "The lab"], &[7], LAB),
    not(
        ["docs/lab.md", "Machines of your own"],
        &[1],
        "it changes the owner of a volume of Docker that former versions of the lab left",
    ),
    with(["docs/start.md", "1. Install the program"], &[1], README),
    with(["docs/start.md", "2. Build the in-memory environment"], &[1], README),
    with(["docs/start.md", "4. Get an image"], &[1], README),
    with(["docs/start.md", "8. Log in"], &[1], README),
    with(["docs/troubleshooting.md", "Kernel or initramfs: 404"], &[1], README),
];

/// The pages in which only the program writes, and the tests of their commands.
const GENERATED: [(&str, [&str; 2]); 2] = [
    (
        "docs/reference/commands.md",
        ["services/all-in-one/src/examples.rs", "each_example_is_of_a_command_and_can_be_parsed"],
    ),
    (
        "docs/reference/api.md",
        [
            "services/all-in-one/src/reference_tests/api.rs",
            "each_example_names_a_call_and_its_fields",
        ],
    ),
];

fn folder() -> std::path::PathBuf {
    setup::root().join("services/all-in-one/tests/processes/docs")
}

/// The page of a block, and its heading with its number below that.
type Place = (String, String);

/// Returns the blocks that `fits`, by their places.
fn numbered(fits: impl Fn(&Block) -> bool) -> BTreeMap<Place, Block> {
    let mut blocks = BTreeMap::new();
    let mut counts = BTreeMap::new();
    for block in pages().iter().flat_map(Page::blocks).filter(fits) {
        let count = counts.entry((block.page.clone(), block.heading.clone())).or_insert(0);
        *count += 1;
        blocks.insert((block.page.clone(), file_name(&block.heading, *count)), block);
    }
    blocks
}

/// Returns the name of the block with this number below a heading.
fn file_name(heading: &str, number: usize) -> String {
    let suffix = if number == 1 { String::new() } else { format!(" ({number})") };
    heading.replace('/', "_") + &suffix
}

/// Writes the commands of each block to a file in `folder`, and each block of data or of Python, for the scenarios.
fn write_blocks(folder: &Path) {
    let write = |page: &str, name: String, text: String| {
        let file = folder.join(page).join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text + "\n").unwrap();
    };
    for ((page, name), block) in numbered(Block::is_shell) {
        write(&page, format!("{name}.commands"), block.commands().join("\n"));
    }
    for language in ["console", "json", "python", "yaml"] {
        for ((page, name), block) in numbered(|block| block.language == language) {
            write(&page, format!("{name}.{language}"), block.lines.join("\n"));
        }
    }
}

/// Returns the scenarios: the names of their files, and their texts.
fn scenarios() -> BTreeMap<String, String> {
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let scripts = files.filter(|path| path.extension().is_some_and(|end| end == "sh"));
    let named = scripts.map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read_to_string(path).unwrap())
    });
    named.filter(|(name, _)| name != "prelude.sh").collect()
}

/// Returns the places of the blocks that a scenario runs.
fn run_by(scenario: &str) -> Vec<Place> {
    let lines = scenario.lines().map(|line| line.trim().trim_start_matches("if "));
    let place = |rest: &str| {
        let (page, rest) = rest.split_once(' ').unwrap();
        let heading = match rest.strip_prefix('\'') {
            Some(quoted) => quoted.split('\'').next(),
            None => rest.split([' ', ';']).next(),
        };
        (page.to_owned(), heading.unwrap().to_owned())
    };
    lines.filter_map(|line| line.strip_prefix("block ").map(place)).collect()
}

/// Returns the code of a function, which has several lines, without comments and spaces.
fn code([file, function]: [&str; 2]) -> String {
    let text = std::fs::read_to_string(setup::root().join(file)).unwrap();
    let start = format!("fn {function}(");
    let mut lines = text.lines().skip_while(|line| !line.contains(&start));
    let first = lines.next().unwrap_or_else(|| panic!("{file} has no function {function}"));
    let indentation = first.len() - first.trim_start().len();
    let end = format!("{}}}", " ".repeat(indentation));
    let inner = lines.take_while(|line| **line != end);
    let code = inner.filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(str::split_whitespace).collect()
}

/// Asserts that the test reads the commands of these blocks out of their page.
fn assert_reads(test: [&str; 2], [page, heading]: [&str; 2]) {
    let call: String = format!("typed(\"{page}\", \"{heading}\"").split_whitespace().collect();
    let [file, function] = test;
    assert!(code(test).contains(&call), "{file}: {function} does not type {page}: {heading}");
}

/// Asserts that each of `commands` is one of the block at `place`, or one of several in a line of that.
fn assert_contained(commands: &[String], [page, heading]: [&str; 2]) {
    let mut parts = Vec::new();
    for line in typed(page, heading).iter().flat_map(Block::commands) {
        let line = line.split(" #").next().unwrap_or_default().trim_end();
        parts.push(line.to_owned());
        parts.extend(line.split(" && ").map(str::to_owned));
    }
    for command in commands {
        assert!(parts.contains(command), "{page}: {heading} does not have: {command}");
    }
}

/// Checks what is listed against the blocks `left` that no scenario runs. Returns the places of its blocks.
fn check_listed(listed: &Elsewhere, left: &BTreeMap<Place, Block>) -> Vec<Place> {
    let Elsewhere { place: [page, heading], commands, tested } = listed;
    let is_below = |block: &Block| block.page == *page && block.heading == *heading;
    let mut found: Vec<_> = left.iter().filter(|(_, block)| is_below(block)).collect();
    found.sort_by_key(|(_, block)| block.line);
    let counts: Vec<_> = found.iter().map(|(_, block)| block.commands().len()).collect();
    assert_eq!(counts, *commands, "{page}: {heading}: commands of blocks that no scenario runs");
    match tested {
        Tested::By { file, function } => assert_reads([file, function], [page, heading]),
        Tested::With { place } => {
            let is_read = |it: &Elsewhere| matches!(it.tested, Tested::By { .. });
            assert!(ELSEWHERE.iter().any(|it| it.place == *place && is_read(it)), "{place:?}");
            found.iter().for_each(|(_, block)| assert_contained(&block.commands(), *place));
        }
        Tested::Not { reason } => assert!(reason.contains(' '), "{page}: {reason}"),
    }
    found.into_iter().map(|(place, _)| place.clone()).collect()
}

#[test]
fn each_block_is_run_once_or_listed_with_its_test_or_a_reason() {
    let mut left = numbered(Block::is_shell);
    left.retain(|(page, _), _| !GENERATED.iter().any(|(generated, _)| page == generated));
    GENERATED.iter().for_each(|(_, test)| assert!(!code(*test).is_empty(), "{test:?}"));
    for (name, text) in scenarios() {
        for place in run_by(&text) {
            assert!(left.remove(&place).is_some(), "{name} runs {place:?}, which is not there");
        }
    }
    for listed in ELSEWHERE {
        for place in check_listed(listed, &left) {
            left.remove(&place);
        }
    }
    let forgotten: Vec<_> = left
        .values()
        .map(|block| format!("{}:{}: {}", block.page, block.line, block.heading))
        .collect();
    assert!(
        forgotten.is_empty(),
        "neither in a scenario (tests/processes/docs/*.sh) nor in ELSEWHERE: {forgotten:#?}"
    );
}

#[test]
#[should_panic(expected = "does not type docs/lab.md: The lab")]
fn a_test_that_does_not_read_the_listed_commands_is_noticed() {
    assert_reads(IAL, ["docs/lab.md", "The lab"]);
}

#[test]
#[should_panic(expected = "README.md: Tinwright does not have: tinwright osie build")]
fn a_command_that_differs_from_the_listed_block_is_noticed() {
    assert_contained(&["tinwright osie build".to_owned()], README);
}

/// The variables and the servers that a scenario has besides its own commands.
#[derive(Default)]
struct Surroundings {
    variables: Vec<(&'static str, String)>,
    /// It runs as long as the scenario.
    _bmcs: Option<Emulator>,
}

/// Runs the scenario in the file `name`, with the `surroundings` that are made in its network.
fn run(name: &str, surroundings: fn() -> Surroundings) {
    let network = Network::new(&["52:54:00:00:01:02"]);
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    write_blocks(&path("blocks"));
    for folder in ["scratch", "bin"] {
        std::fs::create_dir(path(folder)).unwrap();
    }
    symlink(env!("CARGO_BIN_EXE_tinwright"), path("bin/tinwright")).unwrap();
    symlink(setup::program("tinwright-node"), path("bin/tinwright-node")).unwrap();
    let scenario = std::fs::read_to_string(folder().join(name)).unwrap();
    let prelude = std::fs::read_to_string(folder().join("prelude.sh")).unwrap();
    std::fs::write(path("scenario.sh"), prelude + &scenario).unwrap();
    network.on_site(async || {
        let surroundings = surroundings();
        let log = std::fs::File::create(path("log")).unwrap();
        let mut command = in_namespaces(&path("scenario.sh"), &path("bin"));
        command.env("BLOCKS", path("blocks")).env("SCRATCH", path("scratch"));
        command.env("MACHINE", network.machine(0)).envs(surroundings.variables);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let status = command.status().unwrap();
        let log = String::from_utf8_lossy(&std::fs::read(path("log")).unwrap()).into_owned();
        let last = log.len().saturating_sub(6000);
        assert!(status.success(), "{name}: {}", &log[log.ceil_char_boundary(last)..]);
    });
}

/// Returns the command that runs a script with mounts and processes of its own, and finds programs in the folder `programs` first.
fn in_namespaces(script: &Path, programs: &Path) -> Command {
    let search = std::env::var("PATH").unwrap();
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "1200", "unshare", "--mount", "--propagation", "private"]);
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "bash"]).arg(script);
    command.env("PATH", format!("{}:{search}", programs.display())).env("ROOT", setup::root());
    command
}

#[test]
fn the_commands_for_operators_run() {
    run("operations.sh", Surroundings::default);
}

#[test]
fn the_commands_for_clients_of_rest_run() {
    run("gateway.sh", Surroundings::default);
}

#[test]
fn the_commands_for_a_site_run() {
    run("site.sh", Surroundings::default);
}

#[test]
fn the_commands_for_a_site_without_a_network_run() {
    run("air-gap.sh", Surroundings::default);
}

#[test]
fn the_commands_of_the_migration_run() {
    run("migration.sh", Surroundings::default);
}

#[test]
fn the_commands_for_a_node_run() {
    run("node.sh", Surroundings::default);
}

/// A BMC of two machines, and its login.
fn bmcs() -> Surroundings {
    let bmcs = Emulator::guarded_rack(&["node0", "node1"].map(str::to_owned));
    let variables = [("BMC", bmcs.url.as_str()), ("USER", USER), ("PASSWORD", PASSWORD)];
    let variables = variables.map(|(name, value)| (name, value.to_owned())).to_vec();
    Surroundings { variables, _bmcs: Some(bmcs) }
}

#[test]
fn the_commands_for_bmcs_run() {
    run("enrol.sh", bmcs);
}

#[test]
fn the_commands_of_the_quick_start_run() {
    run("start.sh", bmcs);
}

#[test]
fn the_examples_of_the_api_in_python_run() {
    run("api.sh", || {
        let tools = setup::tools().unwrap().display().to_string();
        Surroundings { variables: vec![("TOOLS", tools)], _bmcs: None }
    });
}
