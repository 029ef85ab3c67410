"""unit.cu: the random number of a unit's layer, by test_dropout's Philox: of the counter ("unit", microbatch, step,
layer), keyed with the training's seed. In a graph, the device counts steps from 1, and repetitions of the period."""
import numpy as np

from check import address, Device
from test_dropout import philox


def draw(suite, step, batch, period=0, counted=None):
    """counted: the step from 1, and the repetitions, as the device counts them; None: an eager step."""
    d, seed, layer = Device(), 0xfedcba9876543210, 11
    to = d.buffer(np.zeros(1, np.uint64), 'w')
    where = address(d.buffer(np.array(counted, np.int64))) if counted else np.uint64(0)
    suite.run('draw_seed', d, [1], [1],
              [address(to), np.uint64(seed), np.uint32(step), np.uint32(batch), np.uint32(layer), where, np.int32(period)])
    if counted:
        step, batch = counted[0] - 1, batch + counted[1] * period
    words = philox([0x756e6974, batch, step, layer], [seed % 2**32, seed >> 32])
    assert d.get(to, np.uint64, (1,))[0] == words[1] << 32 | words[0]


def tests(suite):
    suite.test('an eager step', draw, 6, 5)
    suite.test('a graph', draw, 99, 5, 0, [7, 3])
    suite.test('a repeated period', draw, 99, 5, 4, [7, 3])
    suite.test('the first step', draw, 0, 0)
