"""The prefix cache: which nodes of the prefix tree an engine has, and who holds them.

A node that running requests hold keeps its blocks; one that nobody holds stands among the free blocks until they are
taken. What is above a node that an engine has is there too (radix tree).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchline.simulate._compile import jit

from .blocks import push_free, reclaim
from .codes import GONE, HELD, NODE, NONE

if TYPE_CHECKING:
    from batchline.simulate._records import Cache, Engine, Request, Rules, Tree, World


@jit
def deepest(cache: Cache, index: int, leaf: int) -> int:
    """Deepest node of the way to `leaf` that an engine has in its cache. What is above such a node is there too."""
    node = leaf
    while node != NONE and cache.nodes[node * cache.engines + index].entry == GONE:
        node = cache.tree[node].parent
    return node


@jit
def blocks_to(tree: Tree, node: int) -> int:
    return 0 if node == NONE else tree[node].blocks


@jit
def unheld_blocks(cache: Cache, index: int, node: int) -> int:
    """Blocks on the way to `node` that stand among the free ones."""
    deep = blocks_to(cache.tree, node)
    while node != NONE and cache.nodes[node * cache.engines + index].refs == 0:
        node = cache.tree[node].parent
    return deep - blocks_to(cache.tree, node)


@jit
def acquire(world: World, engine: Engine, cache: Cache, node: int) -> None:
    while node != NONE:
        held = cache.nodes[node * cache.engines + engine.index]
        if held.refs == 0:
            reclaim(world, engine, cache.entries, held.entry)
            held.entry = HELD
        held.refs += 1
        node = cache.tree[node].parent


@jit
def release(world: World, engine: Engine, cache: Cache, node: int) -> None:
    while node != NONE:
        place = node * cache.engines + engine.index
        held = cache.nodes[place]
        parent = cache.tree[node].parent
        held.refs -= 1
        if held.refs == 0:
            blocks = cache.tree[node].blocks - blocks_to(cache.tree, parent)
            held.entry = push_free(world, engine, cache.entries, NODE, place, blocks)
        node = parent


@jit
def register(cache: Cache, request: Request) -> None:
    """Make the prompt of a request findable, once all of it is scheduled; unless another was faster."""
    if request.leaf == NONE or deepest(cache, request.engine, request.leaf) != request.held:
        return
    node = request.leaf
    while node != request.held:
        place = cache.nodes[node * cache.engines + request.engine]
        place.refs = 1
        place.entry = HELD
        node = cache.tree[node].parent
    request.held = request.leaf


@jit
def own_blocks(rules: Rules, tree: Tree, request: Request) -> int:
    """Blocks of a request that are not in the prefix tree."""
    return int((request.have + rules.block_size - 1) // rules.block_size - blocks_to(tree, request.held))


@jit
def needed_blocks(rules: Rules, tree: Tree, node: int, own: int, tokens: int) -> int:
    """New blocks for a request of so many tokens, beside what was found of it."""
    return int(max((tokens + rules.block_size - 1) // rules.block_size - blocks_to(tree, node) - own, 0))
