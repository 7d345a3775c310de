"""The checksum of checkpoints and of TensorBoard's events, for tests of either."""


def crc32c(data):
    """Bit by bit, from the polynomial: nothing is shared with the program's table."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
