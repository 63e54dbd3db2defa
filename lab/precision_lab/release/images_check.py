"""Starts both images as the chart does: each server until it is ready on a real API server, the agent until it ends.

Each program runs in a chroot of its image's own root, read-only but for /tmp, with the variables of the image, and as
two users: the image's own, and one that no image knows, as OpenShift gives each namespace. The servers have the rights
and the arguments of the chart's Deployments, and the service account's files where a pod has them.
"""

import json
import struct
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from precision_api.facts import names
from precision_lab.builds.go_build import Say
from precision_lab.builds.image_archives import (
    REPOSITORY,
    TARGETS,
    Command,
    ImageError,
    buildah_storage,
    demand_sizes,
    demand_tools,
    image_archives,
    run,
    size_of,
)
from precision_lab.cluster import kubeconfig
from precision_lab.cluster.objects import Object
from precision_lab.lab import KubectlError, Lab, LabSettings, start_lab
from precision_lab.processes.processes import ProcessError
from precision_lab.release.install import NAMESPACE, Installation, Program, install

USER = "65532:65532"
USERS = (USER, "1000680000:0")
"""UID:GID: the image's own, and an arbitrary UID in group 0."""
PYTHONS = {"operator": "3.13", "agent": "3.12"}
"""Of the Dockerfile's own base images."""
PACKAGES = {target: f"opt/precision-{target}" for target in TARGETS}
"""Where an image has what it adds to its base."""
ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"
CONTAINER = """set -e
mount --bind "$1" "$1"
account=$(chroot "$1" readlink -m "/$4")
mkdir -p "$1$account"
mount -o remount,bind,ro "$1"
mount -t tmpfs tmpfs "$1/tmp"
mount -t proc proc "$1/proc"
mount --bind /dev "$1/dev"
[ -z "$3" ] || mount --bind "$3" "$1$account"
exec chroot --groups= --userspec="$2" "$1" /usr/bin/env -i "${@:5}"
"""
"""What a runtime does with readOnlyRootFilesystem, an emptyDir at /tmp and a service account: $1 root, $2 user,
$3 folder of the account's files or nothing, $4 where a pod has them; then variables and the command."""
AGENT_SECONDS = 600.0
LATE_SECONDS = 3.0
"""How long the operator runs before its definitions come."""
PROBE = "late"


@dataclass(frozen=True, slots=True)
class Image:
    """One image as a runtime has it: its root as a folder, and what its configuration says."""

    target: str
    root: str
    variables: tuple[str, ...]
    entrypoint: tuple[str, ...]
    user: str

    def start_command(
        self, user: str, command: Sequence[str], variables: Sequence[str] = (), account: Path | str = ""
    ) -> Command:
        """What starts `command` in the image as `user`, with the service account's files of the folder `account`."""
        shell = ["unshare", "--mount", "--propagation=private", "bash", "-c", CONTAINER, "start"]
        return [*shell, self.root, user, str(account), ACCOUNT, *self.variables, *variables, *command]


def check(say: Say) -> None:
    """Builds both images on stand-in bases and starts each as the chart does. Raises ImageError."""
    demand_tools()
    for target in TARGETS:
        _demand_wheels(target, say)
    archives = image_archives(say)
    demand_sizes({target: size_of(archive).added for target, archive in archives.items()})
    with tempfile.TemporaryDirectory(prefix="precision-images-") as scratch, buildah_storage(Path(scratch)) as buildah:
        images = {target: open_image(buildah, target, archive) for target, archive in archives.items()}
        for target, image in images.items():
            demand_bytecode(target, Path(image.root, PACKAGES[target]))
        with start_lab(settings=LabSettings(simulate=False)) as lab:
            installed = install(lab, start=False)
            for program in installed.programs.values():
                for user in USERS:
                    say(f"starting the {program.name} as {user}")
                    check_server(lab, images["operator"], program, user)
            say("starting the operator before its definitions")
            check_late_definitions(lab, images["operator"], installed)
        for user in USERS:
            say(f"starting the agent as {user}")
            check_agent(images["agent"], user)
    say(f"both images were built; their programs start as {' and '.join(USERS)} on a read-only root")


def open_image(buildah: Command, target: str, archive: Path) -> Image:
    """Mounts the image of an archive. Raises ImageError where it names another user than the chart."""
    container = run([*buildah, "from", f"docker-archive:{archive}"]).strip()
    config = json.loads(run([*buildah, "inspect", "--type=container", container]))["OCIv1"]["config"]
    root = run([*buildah, "mount", container]).strip()
    image = Image(target, root, tuple(config["Env"]), tuple(config["Entrypoint"]), config["User"])
    if image.user != USER:
        raise ImageError(f"{target} runs as {image.user}, not {USER}.")
    return image


def demand_bytecode(target: str, folder: Path) -> None:
    """Raises ImageError where a module of ours has no bytecode that Python would take: it compares time and size."""
    sources = [path for package in folder.glob("precision_*/") for path in package.rglob("*.py")]
    stale = [
        path
        for path in sources
        if not any(_is_bytecode_of(path, cached) for cached in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"))
    ]
    if stale or not sources:
        first = stale[0].relative_to(folder) if stale else "none is there"
        raise ImageError(f"{target}: {len(stale)} of {len(sources)} modules would be compiled at each start: {first}")


def _is_bytecode_of(source: Path, cached: Path) -> bool:
    """By the header of a .pyc: 4 bytes of magic number, flags, time and size of the source each."""
    flags, seconds, size = struct.unpack("<III", cached.read_bytes()[4:16])
    stat = source.stat()
    return bool(flags == 0 and (seconds, size) == (int(stat.st_mtime), stat.st_size))


def check_server(lab: Lab, image: Image, program: Program, user: str) -> None:
    """Starts one Deployment's program in the image and waits for /readyz. Raises ImageError with the end of its log."""
    started = in_image(lab, image, program, user)
    try:
        started.start()
    except ProcessError as problem:
        raise ImageError(f"{image.target}: the {program.name} as {user}: {problem}") from problem
    finally:
        _stop(lab, started)


def check_late_definitions(lab: Lab, image: Image, installed: Installation) -> None:
    """An operator that started before its kinds were defined sees a profile of them. Raises ImageError."""
    program = in_image(lab, image, installed.programs["operator"], USER)
    definitions = [item for item in lab.get("crd")["items"] if item["spec"]["group"] == names.GROUP]
    lab.kubectl("delete", "crd", *(item["metadata"]["name"] for item in definitions))
    lab.processes.start(program.name, program.argv)
    try:
        time.sleep(LATE_SECONDS)
        lab.processes.check(program.name)
        lab.apply(*(_fresh(item) for item in definitions))
        lab.wait_until_established()
        spec = {"workload": {"preset": "llama3-8b"}, "suspend": True}
        meta = {"name": PROBE, "namespace": installed.namespace}
        lab.apply({"apiVersion": names.API_VERSION, "kind": names.PROFILE_KIND, "metadata": meta, "spec": spec})
        lab.kubectl(
            *("wait", f"pp/{PROBE}", "-n", installed.namespace, "--timeout=30s"),
            "--for=jsonpath={.status.observedGeneration}=1",
        )
    except (ProcessError, KubectlError) as error:
        log = lab.processes.log(program.name)[-1500:]
        raise ImageError(f"An operator that starts before its definitions: {error}. Its log ended: {log}") from error
    finally:
        _stop(lab, program)


def _fresh(crd: Object) -> Object:
    """A definition as somebody applies it: without what the server added."""
    meta = {key: crd["metadata"][key] for key in ("name", "labels", "annotations") if key in crd["metadata"]}
    return {**{key: crd[key] for key in ("apiVersion", "kind", "spec")}, "metadata": meta}


def _stop(lab: Lab, program: Program) -> None:
    if program.name in lab.processes.states():
        lab.processes.stop(program.name)


def in_image(lab: Lab, image: Image, program: Program, user: str) -> Program:
    """A Deployment's program as it starts in the image, with the files of its service account."""
    credentials = kubeconfig.read(program.kubeconfig)
    account = lab.run_dir / f"account-{program.name}"
    account.mkdir(exist_ok=True)
    (account / "token").write_text(credentials.token)
    (account / "ca.crt").write_bytes(credentials.ca)
    (account / "namespace").write_text(NAMESPACE)  # the operator's Lease is there
    server = urllib.parse.urlsplit(credentials.server)
    variables = [f"KUBERNETES_SERVICE_HOST={server.hostname}", f"KUBERNETES_SERVICE_PORT={server.port}"]
    # The Deployment's command is for the interpreter of the lab; in the image it is the chart's own word.
    command = image.start_command(user, ["python", *program.argv[1:]], variables, account)
    return replace(program, name=f"{program.name}-{user.replace(':', '-')}", argv=tuple(command))


def check_agent(image: Image, user: str) -> None:
    """Runs a request to its end in the image, by the replay backend. Raises ImageError with the end of its output."""
    variables = [f"PRECISION_REQUEST={_request()}"]
    command = image.start_command(user, [*image.entrypoint, "run", "--request=env", "--backend=replay"], variables)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=AGENT_SECONDS)
    demand_result(user, done.returncode, done.stdout, done.stderr)
    # torch's Inductor asks for it, and raises where neither /etc/passwd nor the variables have it.
    run(image.start_command(user, ["python", "-c", "import getpass; getpass.getuser()"]))


def demand_result(user: str, code: int, stdout: str, stderr: str) -> None:
    """Raises ImageError where an agent ended otherwise than with a result in its log."""
    if code != 0 or "PPR1 1/" not in stdout:
        log = (stdout + stderr)[-1500:]
        raise ImageError(f"The agent as {user} ended with {code}, not with 0 and a result. Its log ended: {log}")


def _demand_wheels(target: str, say: Say) -> None:
    """Every locked requirement has a wheel for both architectures: an image never compiles anything."""
    uv = [str(Path(sys.executable).parent / "uv"), "pip", "install", "--dry-run", "--quiet", "--no-deps"]
    locked = REPOSITORY / "requirements" / f"{target}.txt"
    for architecture in ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28"):
        say(f"resolving wheels: {target}, {architecture}")
        place = [f"--python-platform={architecture}", f"--python-version={PYTHONS[target]}", "--only-binary=:all:"]
        with tempfile.TemporaryDirectory() as empty:
            run([*uv, *place, f"--target={empty}", "--require-hashes", "-r", str(locked)])


def _request() -> str:
    """A request as the operator sends it: that of the Job which the core's tests pin."""
    job = json.loads((REPOSITORY / "tests" / "golden" / "job_gb200.json").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return next(str(variable["value"]) for variable in container["env"] if variable["name"] == "PRECISION_REQUEST")
