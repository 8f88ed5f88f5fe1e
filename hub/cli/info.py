"""``synchub info``: the hub about itself."""

from hub.cli.hub_calls import channel_to, message_to_json
from hub.cli.options import DEFAULT_HUB, HubOption, JsonOption
from hub.cli.output import print_facts, print_json
from synchub.channel import UNARY_SECONDS_MAX
from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub

EXAMPLES = """Examples:

  synchub info

  synchub info --hub hub.example:7443 --json
"""


def info(hub: HubOption = DEFAULT_HUB, is_json: JsonOption = False) -> None:
    """Show the hub's version, generation, engine and limits."""
    with channel_to(hub) as channel:
        answer = HubServiceStub(channel).GetHubInfo(GetHubInfoRequest(), timeout=UNARY_SECONDS_MAX)
        if is_json:
            print_json(message_to_json(answer))
            return
        print_facts(
            [
                ("version", answer.version),
                ("hub generation", answer.hub_generation),
                ("engine", answer.engine),
                ("hub time", answer.hub_time.ToJsonString()),
                ("features", ", ".join(answer.features) or "none beyond version 1"),
                *((name, str(value)) for name, value in message_to_json(answer.limits).items()),
            ]
        )
