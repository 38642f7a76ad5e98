"""What a Gym process is given before its life starts: the tokenizer is loaded, and the resources server listens; one class for
each environment that there is for real."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from protocol.errors import ConfigError
from protocol.runtime import Runtime
from real.gym.looking import AnswerScorer, open_looking
from real.gym.pictures import PicturesProfile, RealPictures
from real.gym.resources import open_tools
from real.gym.scenes import Scenes, eye_of
from real.gym.tokens import ModelTokens
from real.gym.workplace import RealWorkplace, WorkplaceProfile


class WorkplaceEquipment:
    """Of the Gym process ``process``; made on its loop. Raises ConfigError for a profile, a model or a port that is none."""

    def __init__(
        self,
        *,
        root: Path,
        life: int,
        process: str,
        model: Path,
        profile: Mapping[str, Any] | None = None,
        over_http: bool = True,
    ) -> None:
        try:
            self.profile = WorkplaceProfile.of(profile)
        except msgspec.ValidationError as error:
            raise ConfigError(f"profile: {error}") from None
        self.tokens = ModelTokens(model)
        self.tools = open_tools(process, root / f"life-{life}" / "scratch" / process / "tables.sqlite", over_http=over_http)

    def environment(self, rt: Runtime) -> RealWorkplace:
        return RealWorkplace(rt, self.tools, self.tokens, self.profile)

    async def close(self) -> None:
        await self.tools.close()


class PicturesEquipment:
    """The same for questions about pictures, which are drawn into ``media`` as they are asked about."""

    def __init__(
        self, *, process: str, model: Path, media: Path, profile: Mapping[str, Any] | None = None, over_http: bool = True
    ) -> None:
        try:
            self.profile = PicturesProfile.of(profile)
        except msgspec.ValidationError as error:
            raise ConfigError(f"profile: {error}") from None
        self.scenes = Scenes(media, eye_of(model))
        self.tokens = ModelTokens(model)
        self.looking = open_looking(process, AnswerScorer(self.tokens), over_http=over_http)

    def environment(self, rt: Runtime) -> RealPictures:
        return RealPictures(rt, self.looking, self.scenes, self.tokens, self.profile)

    async def close(self) -> None:
        await self.looking.close()
