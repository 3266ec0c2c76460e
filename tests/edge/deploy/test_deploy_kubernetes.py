"""deploy/kubernetes: what the cluster's API takes, and what agrees with the code and with the other files."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from fairlane.config.loader import load_settings
from fairlane.config.settings import Settings
from tests.support.commands import check_variables, unknown_options
from tests.support.registries import families
from tests.support.tools import lacking

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "kubernetes"
BUILT = ["base", "overlays/try", "overlays/production"]
OVERLAYS = ["overlays/try", "overlays/production"]
KUBERNETES = ("1.29", "1.34")
CLOSING_S = 20  # beyond its grace, for a worker to say goodbye and end its loop
SPARE = 0.8
"""The part of a worker's slots that the autoscaler means to fill."""

EXTENSIONS = {
    "ScaledObject": {
        "scaleTargetRef",
        "minReplicaCount",
        "maxReplicaCount",
        "pollingInterval",
        "cooldownPeriod",
        "fallback",
        "triggers",
        "advanced",
    },
    "PodMonitor": {"selector", "podMetricsEndpoints"},
}
"""Kinds that are not Kubernetes' own, with the fields of their spec that are used here."""

Manifest = dict[str, Any]


@cache
def built(overlay: str) -> tuple[Manifest, ...]:
    """What `kubectl apply -k` would send."""
    if shutil.which("kubectl"):
        command = ["kubectl", "kustomize"]
    elif shutil.which("kustomize"):
        command = ["kustomize", "build"]
    else:
        lacking("kubectl 1.27 or later, or kustomize 5, is needed to build deploy/kubernetes")
    done = subprocess.run(
        [*command, str(FOLDER / overlay)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def kinds(overlay: str, kind: str) -> dict[str, Manifest]:
    return {each["metadata"]["name"]: each for each in built(overlay) if each["kind"] == kind}


def workloads(overlay: str) -> dict[str, Manifest]:
    return kinds(overlay, "Deployment") | kinds(overlay, "StatefulSet")


def pod(workload: Manifest) -> Manifest:
    spec: Manifest = workload["spec"]["template"]["spec"]
    return spec


def container(workload: Manifest) -> Manifest:
    (only,) = pod(workload)["containers"]
    found: Manifest = only
    return found


def settings_of(overlay: str) -> Settings:
    return load_settings(FOLDER / overlay / "fairlane.toml", {})


@pytest.mark.parametrize("overlay", BUILT)
@pytest.mark.parametrize("version", KUBERNETES)
def test_every_manifest_is_one_that_the_api_takes(overlay: str, version: str) -> None:
    seen = 0
    for manifest in built(overlay):
        if manifest["kind"] in EXTENSIONS:
            assert set(manifest["spec"]) <= EXTENSIONS[manifest["kind"]]
            continue
        kubernetes_validate.validate(manifest, version, strict=True)
        seen += 1
    assert seen > 10


def test_a_manifest_with_a_misspelt_field_is_refused() -> None:
    wrong = yaml.safe_load(yaml.safe_dump(kinds("base", "Deployment")["worker"]))
    wrong["spec"]["template"]["spec"]["terminationGraceSeconds"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES[-1], strict=True)


def test_every_component_is_part_of_an_overlay_or_stands_in_for_one_that_is() -> None:
    used = {
        Path(component).name
        for overlay in OVERLAYS
        for component in yaml.safe_load((FOLDER / overlay / "kustomization.yaml").read_text())["components"]
    }
    assert {path.name for path in (FOLDER / "components").iterdir()} == used | {"autoscaling-hpa"}


def test_the_other_autoscaler_can_be_built_and_means_the_same(tmp_path: Path) -> None:
    copy = tmp_path / "kubernetes"
    shutil.copytree(FOLDER, copy)
    overlay = copy / "overlays" / "try" / "kustomization.yaml"
    text = overlay.read_text(encoding="utf-8").replace("components/redis", "components/autoscaling-hpa")
    overlay.write_text(text, encoding="utf-8")
    (scaler,) = (each for each in built(str(overlay.parent)) if each["kind"] == "HorizontalPodAutoscaler")
    for version in KUBERNETES:
        kubernetes_validate.validate(scaler, version, strict=True)
    (metric,) = scaler["spec"]["metrics"]
    keda = kinds("overlays/production", "ScaledObject")["worker"]["spec"]
    (trigger,) = keda["triggers"]
    assert metric["external"]["metric"]["name"] in trigger["metadata"]["query"]
    assert metric["external"]["target"]["averageValue"] == trigger["metadata"]["threshold"]
    assert scaler["spec"]["maxReplicas"] == keda["maxReplicaCount"]
    assert scaler["spec"]["behavior"] == keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]


@pytest.mark.parametrize("overlay", BUILT)
def test_no_pod_is_root_or_may_become_it_or_writes_into_its_image(overlay: str) -> None:
    for name, workload in workloads(overlay).items():
        of_pod, of_container = pod(workload)["securityContext"], container(workload)["securityContext"]
        assert of_pod["runAsNonRoot"] is True, name
        assert of_pod["runAsUser"] > 0
        assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert of_container["allowPrivilegeEscalation"] is False
        assert of_container["readOnlyRootFilesystem"] is True
        assert of_container["capabilities"] == {"drop": ["ALL"]}
        assert pod(workload)["automountServiceAccountToken"] is False
        assert "hostNetwork" not in pod(workload)
    levels = kinds(overlay, "Namespace")["fairlane"]["metadata"]["labels"]
    assert levels["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("overlay", BUILT)
def test_our_pods_run_as_the_images_own_user(overlay: str) -> None:
    dockerfile = (ROOT / "deploy/docker/Dockerfile").read_text(encoding="utf-8")
    for workload in workloads(overlay).values():
        if "fairlane" in container(workload)["image"]:
            assert f"USER {pod(workload)['securityContext']['runAsUser']}:" in dockerfile


@pytest.mark.parametrize("overlay", BUILT)
def test_every_pod_says_what_it_needs_and_whether_it_is_well(overlay: str) -> None:
    for name, workload in workloads(overlay).items():
        one = container(workload)
        assert {"readinessProbe", "livenessProbe"} <= set(one), name
        assert {"cpu", "memory"} == set(one["resources"]["requests"])
        assert "memory" in one["resources"]["limits"]
        names = {port["name"] for port in one["ports"]}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            asked = one.get(probe, {}).get("httpGet") or one.get(probe, {}).get("tcpSocket") or {}
            assert asked.get("port", next(iter(names))) in names


@pytest.mark.parametrize("role", ["scheduler", "worker"])
def test_probes_and_metrics_are_where_a_role_serves_them(role: str) -> None:
    settings = settings_of("base").metrics
    assert settings.host == "0.0.0.0"
    port = settings.scheduler_port if role == "scheduler" else settings.worker_port
    one = container(kinds("base", "Deployment")[role])
    assert one["ports"] == [{"name": "metrics", "containerPort": port}]
    assert one["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert one["readinessProbe"]["httpGet"]["path"] == "/readyz"
    service = kinds("base", "Service")[role]["spec"]
    assert service["clusterIP"] == "None"
    assert [each["port"] for each in service["ports"]] == [port]


@pytest.mark.parametrize("overlay", BUILT)
def test_commands_and_variables_are_ours(overlay: str) -> None:
    for workload in workloads(overlay).values():
        one = container(workload)
        if "fairlane" not in one["image"]:
            continue
        assert unknown_options(one["args"]) == set()
        check_variables(each["name"] for each in one.get("env", []))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_image_of_every_role_is_the_same_and_its_tag_is_stated(overlay: str) -> None:
    images = {container(each)["image"] for each in workloads(overlay).values()}
    ours = {image for image in images if image.rpartition("/")[2].startswith("fairlane")}
    production = {image for image in ours if "fairlane-simulator" not in image}
    assert len(production) == 1
    assert all(image.rpartition(":")[2][0].isdigit() for image in ours)
    assert all(":" in image for image in images)


@pytest.mark.parametrize("overlay", BUILT)
def test_keys_of_providers_reach_the_workers_alone(overlay: str) -> None:
    for name, workload in workloads(overlay).items():
        one = container(workload)
        handed = [each["secretRef"]["name"] for each in one.get("envFrom", [])]
        keys = [each for each in handed if each.startswith("fairlane-provider-keys")]
        assert (len(handed), len(keys)) == ((1, 1) if name == "worker" else (0, 0)), name
        assert not [each for each in one.get("env", []) if "value" in each and "KEY" in each["name"]]


def test_the_connections_keys_are_in_the_secret_that_is_made_to_try() -> None:
    wanted = {each.api_key_env for each in settings_of("overlays/try").connections.values()}
    secrets = kinds("overlays/try", "Secret")
    (keys,) = (secret for name, secret in secrets.items() if name.startswith("fairlane-provider-keys"))
    assert wanted == set(keys["data"])
    assert not kinds("overlays/production", "Secret"), "secrets of production are in no file"


@pytest.mark.parametrize("overlay", BUILT)
def test_a_worker_has_longer_to_stop_than_it_gives_its_calls(overlay: str) -> None:
    grace = settings_of(overlay).worker.shutdown_grace_seconds
    stop = pod(kinds(overlay, "Deployment")["worker"])["terminationGracePeriodSeconds"]
    assert stop >= grace + CLOSING_S


def test_the_autoscaler_counts_with_the_slots_that_workers_have() -> None:
    settings = settings_of("overlays/production")
    scaled = kinds("overlays/production", "ScaledObject")["worker"]["spec"]
    (trigger,) = scaled["triggers"]
    assert int(trigger["metadata"]["threshold"]) == round(settings.worker.slots * SPARE)
    assert scaled["maxReplicaCount"] * settings.worker.slots >= settings.scheduler.max_in_flight
    assert "replicas" not in kinds("overlays/production", "Deployment")["worker"]["spec"]
    assert scaled["scaleTargetRef"]["name"] == "worker"


def test_the_autoscaler_goes_by_a_metric_that_the_scheduler_exports() -> None:
    (trigger,) = kinds("overlays/production", "ScaledObject")["worker"]["spec"]["triggers"]
    assert "fairlane_slots_needed" in trigger["metadata"]["query"]
    assert "fairlane_slots_needed" in families("scheduler")


@pytest.mark.parametrize("role", ["scheduler", "worker"])
def test_a_standby_is_on_another_machine_and_is_not_evicted_with_its_leader(role: str) -> None:
    spread = pod(kinds("base", "Deployment")[role])["topologySpreadConstraints"]
    assert {each["topologyKey"] for each in spread} == {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    }
    budget = kinds("base", "PodDisruptionBudget")[role]["spec"]
    labels = kinds("base", "Deployment")[role]["spec"]["template"]["metadata"]["labels"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    assert kinds("base", "Deployment")["scheduler"]["spec"]["replicas"] == 2


def selected(policy: Manifest, labels: dict[str, str]) -> bool:
    chosen = policy["spec"]["podSelector"]
    exact = chosen.get("matchLabels", {}).items() <= labels.items()
    return exact and all(
        labels.get(each["key"]) in each["values"] for each in chosen.get("matchExpressions", [])
    )


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_everybody_reaches_what_they_need_and_only_workers_reach_the_world(overlay: str) -> None:
    policies = kinds(overlay, "NetworkPolicy")
    assert policies["nothing-else"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for name, workload in workloads(overlay).items():
        labels = workload["spec"]["template"]["metadata"]["labels"]
        of_it = {title for title, policy in policies.items() if selected(policy, labels)}
        assert ("to-redis" in of_it) is (name in ("scheduler", "worker", "flower")), name
        assert ("providers" in of_it) is (name == "worker")
        assert ("redis" in of_it) is (name == "redis")


def test_a_redis_beyond_the_cluster_has_a_policy_of_the_same_name() -> None:
    policy = yaml.safe_load((FOLDER / "overlays/production/external-redis.yaml").read_text(encoding="utf-8"))
    for version in KUBERNETES:
        kubernetes_validate.validate(policy, version, strict=True)
    assert policy["metadata"]["name"] == "to-redis"


def test_redis_appends_to_its_file_and_evicts_nothing() -> None:
    redis = container(kinds("overlays/production", "StatefulSet")["redis"])
    options = dict(zip(redis["args"][1::2], redis["args"][2::2], strict=True))
    assert (options["--appendonly"], options["--maxmemory-policy"]) == ("yes", "noeviction")
    assert (options["--lazyfree-lazy-expire"], options["--hash-max-ziplist-entries"]) == ("yes", "16")
    assert {"name": "data", "mountPath": options["--dir"]} in redis["volumeMounts"]


def test_the_simulated_provider_is_the_one_that_compose_has() -> None:
    ours = (FOLDER / "components/simulator/simulator.toml").read_text(encoding="utf-8")
    assert ours == (ROOT / "deploy/docker/simulator.toml").read_text(encoding="utf-8")
    settings = settings_of("overlays/try")
    service = kinds("overlays/try", "Service")["simulator"]["spec"]["ports"][0]["port"]
    assert settings.connections["sim"].base_url == f"http://simulator:{service}/v1"
