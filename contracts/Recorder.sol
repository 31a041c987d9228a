// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

/// @title Recorder
/// @notice The effect that `dev`, `demo` and the tests watch: every call leaves one event and one count, so a lost or a
///         doubled transaction shows on the chain itself. It guards nothing; anyone may call everything. Not for real money.
contract Recorder {
    /// One effect. Both fields are indexed, so that the effects of one id or one signer can be asked for alone.
    event Recorded(bytes32 indexed id, address indexed sender);

    /// How often each id was recorded: 1 is right, 0 is lost, more is doubled.
    mapping(bytes32 => uint256) public times;

    /// How many effects there were in all.
    uint256 public total;

    /// While true, `record` reverts.
    bool public failing;

    /// Only there so that `burn` writes something the compiler cannot leave out.
    uint256 private ash;

    receive() external payable {}

    function record(bytes32 id) external {
        require(!failing, "Recorder: failing");
        unchecked {
            times[id] += 1;
            total += 1;
        }
        emit Recorded(id, msg.sender);
    }

    /// Makes `record` revert from now on, or work again: a call that simulates well can then fail when it is mined.
    function setFailing(bool value) external {
        failing = value;
    }

    function revertAlways() external pure {
        revert("Recorder: always");
    }

    /// Uses gas in proportion to `n`, without memory: the cost of a round does not grow.
    function burn(uint256 n) external {
        uint256 spent = n;
        unchecked {
            for (uint256 i = 0; i < n; ++i) {
                spent = spent * 6364136223846793005 + i;
            }
        }
        ash = spent;
    }
}
